// @ts-check
// Opening an app as soon as the session runs: the tab is opened by the click that launches, for browsers block any that
// comes later, and waits for the session by itself.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("launch");
  const place = document.getElementById("open-app");
  const key = form.elements.request_key.value;
  if (form.dataset.refused) new BroadcastChannel("launch").postMessage({ refused: key });
  if (!place) return;
  const tick = place.querySelector("[type=checkbox]");
  const KEPT = "launch-open-app";
  try {
    tick.checked = localStorage.getItem(KEPT) !== "no";
  } catch {
    tick.checked = true; // storage is blocked: it is as for somebody new
  }
  tick.addEventListener("change", () => {
    try {
      localStorage.setItem(KEPT, tick.checked ? "yes" : "no");
    } catch {
      // It is asked again next time.
    }
  });

  const opens = () => {
    const [image] = form.querySelectorAll("[name=image]:checked, select[name=image] option:checked");
    const typed = form.elements.manual_image?.value.trim();
    const number = Math.max(Number(form.elements.count.value) || 1, Number(form.elements.cluster_size.value) > 1 ? 1 : 0);
    const several = number > 1 && !form.elements.count.disabled;
    const isWorkedIn = Boolean(form.querySelector("[name=session_type][data-worked-in]:checked"));
    return isWorkedIn && !typed && !several && image?.dataset.opens === tick.value;
  };
  const show = () => {
    place.hidden = !opens();
    tick.disabled = place.hidden;
  };
  for (const kind of ["input", "change", "htmx:afterSettle"]) form.addEventListener(kind, show);
  addEventListener("pageshow", show);
  show();

  form.addEventListener("submit", (event) => {
    if (event.defaultPrevented || event.submitter?.value !== "launch" || !opens() || !tick.checked) return;
    const tab = open(place.dataset.href.replace("KEY", key), "_blank");
    if (!tab) return; // blocked: this tab waits instead
    tab.opener = null;
    form.elements.tab_opened.value = "yes";
  });
});
