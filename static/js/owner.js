// @ts-check
// The owner on the launch form: another address than the one that was looked up puts away what belongs to that one, and
// anyone who turns the switch off gets a form of their own again.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("owner-lookup");
  const address = document.getElementById("id_owner");
  const search = document.getElementById("owner-search");
  const found = document.getElementById("owner-found");
  const isOn = place.querySelector("[type=checkbox]");

  const compare = () => {
    if (!found) return;
    const stale = address.value.trim().toLowerCase() !== found.dataset.email;
    found.hidden = stale;
    for (const select of found.querySelectorAll("select")) select.disabled = stale;
  };
  address.addEventListener("input", compare);
  addEventListener("pageshow", compare);
  address.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    search.click();
  });
  isOn.addEventListener("change", () => {
    if (isOn.checked) address.focus();
    else if (found) search.click();
  });
});
