# /etc/profile forgets the PATH that the image sets; login shells (tmux starts them) get it back here.
PATH=/home/work/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
[ -d /opt/kernel/bin ] && PATH=/home/work/.local/bin:/opt/kernel/bin:${PATH#*:}
export PATH
