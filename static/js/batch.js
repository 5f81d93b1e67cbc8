// @ts-check
// When a batch session starts and how long it may take: both are checked first, and said in words.
document.addEventListener("DOMContentLoaded", () => {
  const times = document.getElementById("batch-times");
  if (!times) return;
  const language = document.documentElement.lang;
  const tell = (field) => {
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.dispatchEvent(new Event("change", { bubbles: true }));
  };
  // A tick shows the field and fills it; without one it is empty.
  const wish = (name, usual) => {
    const place = times.querySelector(`[data-wish=${name}]`);
    const [tick, field] = [place.querySelector("[type=checkbox]"), document.getElementById(`id_${name}`)];
    const show = () => (place.querySelector(".field").hidden = !tick.checked);
    Object.assign(tick, { name: "wished", value: name }).setAttribute("form", "launch"); // checked and left empty is a mistake
    tick.checked = Boolean(field.value);
    tick.addEventListener("change", () => {
      field.value = tick.checked ? usual() : "";
      show();
      tell(field);
    });
    show();
    return { place, tick, field, echo: place.querySelector("[data-echo]") };
  };
  const local = (/** @type {number} */ time) => new Date(time - new Date(time).getTimezoneOffset() * 60000).toISOString().slice(0, 16);

  const start = wish("starts_at", () => local(Math.ceil(Date.now() / 60000) * 60000 + 120000));
  const words = new Intl.RelativeTimeFormat(language, { numeric: "always" });
  /** @type {[Intl.RelativeTimeFormatUnit, number][]} */
  const steps = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const look = () => {
    const { field, echo } = start;
    const seconds = Math.round((new Date(field.value).getTime() - Date.now()) / 1000);
    const isPast = seconds <= 0;
    const [unit, size] = steps.find((step) => seconds >= step[1] * 2) ?? steps.at(-1);
    const isWrong = Number.isNaN(seconds); // a year of six digits, which the field takes
    const text = !field.value || isWrong ? "" : isPast ? times.dataset.past : words.format(Math.floor(seconds / size), unit);
    if (echo.textContent !== text) echo.textContent = text;
    echo.classList.toggle("state-bad", isPast || isWrong);
    field.min = local(Date.now());
  };
  setInterval(look, 1000);
  start.field.addEventListener("input", look);
  look();

  const units = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };
  const parts = times.querySelector(".timeout-parts");
  const [number, unit] = parts.querySelectorAll("input, select");
  const timeout = wish("batch_timeout", () => "1h");
  const read = () => {
    const found = [...timeout.field.value.matchAll(/(\d+)\s*([smhdw])/g)];
    const seconds = found.reduce((sum, [, amount, each]) => sum + Number(amount) * units[each], 0);
    const fits = Object.entries(units).filter(([, size]) => seconds % size === 0).at(-1) ?? ["s", 1]; // of more digits than a number has
    number.value = found.length ? String(seconds / fits[1]) : "";
    if (found.length) unit.value = seconds ? fits[0] : found[0][2];
    echo();
  };
  const echo = () => {
    let left = Number(number.value) * units[unit.value];
    const said = Object.entries(units).reverse().slice(1).map(([each, size]) => {
      const amount = Math.floor(left / size);
      left -= amount * size;
      const name = unit.querySelector(`[value=${each}]`).dataset.unit;
      return amount && new Intl.NumberFormat(language, { style: "unit", unit: name, unitDisplay: "long" }).format(amount);
    });
    timeout.echo.textContent = said.filter(Boolean).join(" ");
  };
  const write = () => {
    timeout.field.value = number.value === "" ? "" : number.value + unit.value;
    echo();
    tell(timeout.field);
  };
  const isPlain = /^(\s*\d+\s*[smhdw])*\s*$/.test(timeout.field.value);
  if (isPlain) {
    timeout.field.hidden = true;
    timeout.field.dataset.standIn = number.id;
    timeout.field.after(parts);
    parts.hidden = false;
    times.querySelector("label[for=id_batch_timeout]").htmlFor = number.id;
    timeout.tick.addEventListener("change", read);
    number.addEventListener("input", write);
    unit.addEventListener("change", write);
    read();
  }
});
