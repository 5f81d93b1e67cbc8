// @ts-check
// The folders of a launch: what is said about one ticks it, a search hides the others, a new one is checked.
document.addEventListener("DOMContentLoaded", () => {
  // The table is renewed when a folder is created, so nothing is bound to it.
  const tick = (row) => row.querySelector("[name=mounts]");
  const rowOf = (target) => target.closest("#id_mounts [data-mount]");

  document.addEventListener("input", ({ target }) => {
    if (target.id === "mounts-search" && "atThePortal" in target.dataset) return;
    if (target.id === "mounts-search") {
      const wanted = target.value.trim().toLowerCase();
      for (const row of document.querySelectorAll("#id_mounts [data-mount]")) row.hidden = !row.dataset.mount.includes(wanted) && !tick(row).checked;
      return;
    }
    const row = rowOf(target);
    if (row && !target.matches("[name=mounts]") && target.value) tick(row).checked = true;
  });
  // A folder that is not mounted is no place to start in.
  document.addEventListener("change", ({ target }) => {
    const row = rowOf(target);
    if (!row || !target.matches("[name=mounts]") || target.checked) return;
    const start = row.querySelector("[name=start_in]");
    if (start.checked) document.querySelector('#id_mounts [name=start_in][value=""]').checked = true;
  });
  document.addEventListener("folder-created", () => {
    document.getElementById("new-folder")?.close();
    const place = document.getElementById("folder-choice");
    place.dispatchEvent(new CustomEvent("launch:show", { bubbles: true, detail: place }));
    place.querySelector("[name=mounts]:checked, [role=status]")?.focus();
    // Address and outlook follow what the form says now.
    place.dispatchEvent(new Event("change", { bubbles: true }));
  });
  document.addEventListener("folder-to-start-in", () => {
    document.getElementById("new-folder").close();
    document.getElementById("launch").requestSubmit(document.getElementById("launch-now"));
  });
});
