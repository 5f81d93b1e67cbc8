// @ts-check
// The page that waits for a session: it goes on into the app by itself, and closes when the launch was refused.
(() => {
  const page = document.getElementById("opening-page");
  const forward = () => {
    const link = page.querySelector("[data-forward]");
    if (link) location.replace(link.href);
  };
  document.addEventListener("htmx:afterSettle", forward);
  document.addEventListener("DOMContentLoaded", forward);
  // A look that found no network is made again.
  document.addEventListener("htmx:sendError", () => setTimeout(() => htmx.trigger("#opening", "look-again"), 3000));
  document.addEventListener("htmx:responseError", () => setTimeout(() => htmx.trigger("#opening", "look-again"), 3000));
  new BroadcastChannel("launch").addEventListener("message", ({ data }) => data.refused === page.dataset.launch && close());
})();
