// @ts-check
// The panel of a session over the list: a click on a name opens it, its address keeps it over a reload, Back and Esc
// close it.
(() => {
  const drawer = document.getElementById("session-drawer");
  const body = document.getElementById("drawer-body");
  const pageLink = document.getElementById("drawer-page");
  const ofSession = /^\/sessions\/([0-9a-f-]{36})\/$/;
  const asked = () => new URLSearchParams(location.search).get("session") || "";
  const title = document.title;
  let shown = "";
  let asksFor = "";
  let told = asked();

  const addressWith = (id) => {
    const address = new URL(location.href);
    id ? address.searchParams.set("session", id) : address.searchParams.delete("session");
    return address.pathname + address.search;
  };
  const fill = async (id) => {
    asksFor = id;
    const address = `/sessions/${encodeURIComponent(id)}/`;
    const text = await portal.part(address);
    if (asksFor !== id) return;
    if (!text) {
      location.replace(address);
      return;
    }
    shown = id;
    pageLink.href = address;
    htmx.swap(body, text, { swapStyle: "innerHTML" });
    portal.beginPanel();
    document.title = `${body.querySelector("[data-title]").dataset.title} · ${title}`;
    if (!drawer.open) drawer.showModal();
    document.getElementById("drawer-inside").scrollTop = 0;
  };
  const empty = () => {
    const left = shown;
    asksFor = shown = "";
    document.title = title;
    body.replaceChildren();
    // The row may have been drawn anew since; the browser would give the focus to nothing then.
    const link = left && [...document.querySelectorAll("#session-list a[href]")].find((each) => each.pathname.includes(left));
    link?.focus();
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest("#session-list a[href], #drawer-body a[href], #session-box-body a[href]");
    const id = link && !link.hash && !link.search && !link.target && !link.dataset.box && ofSession.exec(link.pathname)?.[1];
    if (!id || event.defaultPrevented || !portal.isPlain(event)) return;
    event.preventDefault();
    // The second hit of a double click goes through a button of the row that the first one has disabled or removed.
    if (event.detail > 1) return;
    document.getElementById("session-box").close();
    history.pushState({ drawer: (history.state?.drawer || 0) + 1 }, "", addressWith(id));
    told = id;
    fill(id);
  });

  // Closed by its button, Esc or a click beside it: the address goes back to that of the list.
  drawer.addEventListener("close", () => {
    if (asked()) {
      const steps = history.state?.drawer;
      if (steps) history.go(-steps);
      else history.replaceState(null, "", addressWith((told = "")));
    }
    empty();
  });
  // Before htmx, which would draw the list from its memory although only the panel over it comes or goes.
  addEventListener("popstate", (event) => {
    const id = asked();
    if (id === told) return;
    told = id;
    event.stopImmediatePropagation();
    document.getElementById("session-box").close();
    if (id) fill(id);
    else if (drawer.open) drawer.close();
  }, true);

  // What lies over the panel waits for it.
  portal.drawn = asked() ? fill(asked()) : Promise.resolve();
})();
