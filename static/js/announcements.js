// @ts-check
// Announcements are fetched after the page; one that was dismissed stays away in this browser until it is changed.
(() => {
  const key = "dismissed-announcements";
  const dismissed = () => JSON.parse(localStorage.getItem(key) || "[]");

  // A page that fills the window leaves room for them.
  const tell = ({ contentRect }) => document.documentElement.style.setProperty("--announced", `${contentRect.height}px`);
  new ResizeObserver((sizes) => tell(sizes[0])).observe(document.getElementById("announcements"));

  document.addEventListener("htmx:afterSwap", (event) => {
    for (const bar of event.target.querySelectorAll("[data-announcement]")) {
      if (dismissed().includes(bar.dataset.announcement)) bar.remove();
    }
  });

  document.addEventListener("click", (event) => {
    const bar = event.target.closest("[data-dismiss-announcement]")?.closest("[data-announcement]");
    if (!bar) return;
    localStorage.setItem(key, JSON.stringify([...dismissed(), bar.dataset.announcement].slice(-50)));
    bar.remove();
  });
})();
