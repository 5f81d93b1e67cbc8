// The launcher: one step of the form at a time, in any order. Without this, all steps stand beneath each other.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("launch");
  const steps = [...form.querySelectorAll(".step")];
  const number = () => Number(form.dataset.step);
  form.elements.time_zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone;

  const show = (wanted) => {
    form.dataset.step = Math.min(Math.max(wanted, 1), steps.length);
    for (const link of document.querySelectorAll(".step-list a")) {
      const address = new URL(location.href);
      address.searchParams.set("step", link.dataset.go);
      address.hash = "";
      link.href = address.href;
      if (Number(link.dataset.go) === number()) link.setAttribute("aria-current", "step");
      else link.removeAttribute("aria-current");
    }
  };
  const go = (wanted) => {
    show(wanted);
    const address = new URL(location.href);
    address.searchParams.set("step", number());
    if (address.href !== location.href) history.pushState(null, "", address);
    scrollTo({ top: 0, behavior: "instant" });
    document.getElementById(`step-${number()}-title`).focus({ preventScroll: true });
  };
  show(number());

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-go]");
    if (!button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const wanted = { previous: number() - 1, next: number() + 1 }[button.dataset.go] ?? Number(button.dataset.go);
    go(wanted);
  });
  addEventListener("popstate", () => {
    const asked = Number(new URLSearchParams(location.search).get("step")) || 1;
    if (asked !== number()) show(asked);
  });
  // A part of the page that wants to be seen says so.
  form.addEventListener("launch:show", ({ detail }) => {
    const step = steps.indexOf(detail.closest(".step")) + 1;
    if (step && step !== number()) go(step);
  });
  // Enter in a field goes on; only the button of the last step launches.
  form.addEventListener("submit", (event) => {
    if (event.submitter?.value === "launch") return;
    event.preventDefault();
    go(number() + 1);
  });
});
