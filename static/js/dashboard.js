// @ts-check
// The dashboard is fetched anew when sessions change, every two seconds at most; a choice in it is sent at once.
(() => {
  const place = document.getElementById("dashboard");
  const pause = 2000;
  let timer = 0;
  let lookedAt = 0;

  const look = () => {
    timer = 0;
    // A person choosing from a list would lose the list.
    if (place.querySelector("select:focus")) return soon();
    lookedAt = Date.now();
    htmx.trigger(place, "look-again");
  };
  const soon = () => (timer ||= setTimeout(look, Math.max(300, lookedAt + pause - Date.now())));
  document.addEventListener("session-changed", soon);
  document.addEventListener("look-again-at-all", soon);

  place.addEventListener("change", ({ target }) => {
    if (target.matches("[data-sends]")) target.form.requestSubmit();
  });
})();
