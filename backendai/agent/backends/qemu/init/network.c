/* The networks of the guest: its own loopback, a way out where QEMU gives one, and the other kernels of its session. */
#include "init.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int set_address(int file, struct ifreq *device, unsigned long what, const char *address)
{
    struct sockaddr_in *told = (void *)&device->ifr_addr;
    *told = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)};
    return ioctl(file, what, device);
}

static int raise_device(int file, struct ifreq *device)
{
    if (ioctl(file, SIOCGIFFLAGS, device))
        return -1;
    device->ifr_flags |= IFF_UP;
    return ioctl(file, SIOCSIFFLAGS, device);
}

static int add_route(int file, const char *gateway)
{
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
    struct sockaddr_in *way = (void *)&route.rt_gateway;
    route.rt_dst.sa_family = route.rt_genmask.sa_family = AF_INET;
    *way = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(gateway)};
    return ioctl(file, SIOCADDRT, &route);
}

static void raise_interface(int file, int number, char *told) /* "address:mask" */
{
    struct ifreq device = {0};
    char *mask = strchr(told, ':');
    *mask++ = 0;
    snprintf(device.ifr_name, sizeof device.ifr_name, "eth%d", number);
    if (set_address(file, &device, SIOCSIFADDR, told) || set_address(file, &device, SIOCSIFNETMASK, mask)
        || raise_device(file, &device))
        fail("cannot set up the network", device.ifr_name);
}

void raise_network(const struct launch *launch)
{
    struct ifreq loopback = {.ifr_name = "lo"};
    int file = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (file < 0)
        fail("cannot set up", "the network");
    raise_device(file, &loopback);
    for (int number = 0; launch->interfaces && launch->interfaces[number]; number++)
        raise_interface(file, number, launch->interfaces[number]);
    if (launch->gateway && add_route(file, launch->gateway))
        fail("cannot set up", "the way out");
    close(file);
}
