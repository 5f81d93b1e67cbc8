// The folders of a launch: what is said about one ticks it, and a search hides the others.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("id_mounts");
  if (!place) return;
  const rows = [...place.querySelectorAll("[data-mount]")];
  const tick = (row) => row.querySelector("[name=mounts]");

  place.addEventListener("input", ({ target }) => {
    const row = target.closest("[data-mount]");
    if (row && !target.matches("[name=mounts]") && target.value) tick(row).checked = true;
  });
  // A folder that is not mounted is no place to start in.
  place.addEventListener("change", ({ target }) => {
    const row = target.closest("[data-mount]");
    if (!row || !target.matches("[name=mounts]") || target.checked) return;
    const start = row.querySelector("[name=start_in]");
    if (start.checked) place.querySelector('[name=start_in][value=""]').checked = true;
  });
  place.querySelector("#mounts-search")?.addEventListener("input", ({ target }) => {
    const wanted = target.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.dataset.mount.includes(wanted) && !tick(row).checked;
  });
});
