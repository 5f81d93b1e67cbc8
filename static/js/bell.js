// @ts-check
// Renews the mark on the bell, and the list behind it while it is in sight, when background jobs change or there is
// news of one's sessions.
(() => {
  let planned = 0;
  const renew = () => {
    planned = 0;
    const mark = document.getElementById("bell-mark");
    const list = document.getElementById("notifications");
    if (mark) htmx.trigger(mark, "look-again");
    if (list && (!list.closest("dialog") || list.closest("dialog").open)) htmx.trigger(list, "look-again");
  };
  const soon = () => {
    planned ||= setTimeout(renew, 400);
  };

  document.addEventListener("job-changed", soon);
  document.addEventListener("news-changed", soon);
  document.addEventListener("look-again-at-all", soon);
  // What has been read or put away is marked no more.
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (detail.successful && /^\/notifications\/(seen|clear)\//.test(detail.requestConfig.path)) {
      htmx.trigger(document.getElementById("bell-mark"), "look-again");
    }
  });
})();
