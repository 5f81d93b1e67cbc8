// The amounts on the launch form: a preset shows its numbers in the chosen group, touching a number means custom, and a
// change with which the session would start now is filled in.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("launch");
  const presets = document.getElementById("presets");
  const find = (name) => form.querySelector(`[name="${name}"]`);
  const numbers = () => [...form.querySelectorAll("[name=cpu], [name=mem], [name^='slot.']")];
  const chosen = () => form.querySelector("[name=preset]:checked");
  const typed = () => (document.getElementById("preset-custom").checked = true);

  const variantOf = (radio) => {
    const of = (name) => radio.parentElement.querySelector(`[data-group="${CSS.escape(name)}"]`);
    return of(find("resource_group").value) || of("");
  };
  const choosePreset = () => {
    if (!chosen()?.value) return;
    const amounts = JSON.parse(variantOf(chosen()).dataset.amounts);
    for (const input of numbers()) input.value = amounts[input.name.replace("slot.", "")] ?? "";
  };
  const chooseGroup = () => {
    for (const radio of form.querySelectorAll("[name=preset]:not([value=''])")) {
      const shown = variantOf(radio);
      for (const each of radio.parentElement.querySelectorAll("[data-group]")) each.hidden = each !== shown;
      radio.disabled = !shown;
      radio.parentElement.hidden = !shown;
    }
    if (chosen()?.disabled) typed();
    else choosePreset();
  };
  chooseGroup();
  presets.addEventListener("change", choosePreset);
  presets.addEventListener("htmx:afterSwap", chooseGroup);
  find("resource_group").addEventListener("change", chooseGroup);
  document.getElementById("amounts").addEventListener("input", typed);

  // Another group keeps the amounts, also where the preset means others there.
  const fill = (changes) => {
    const amounts = numbers().map((input) => [input, input.value]);
    const { resource_group: group } = changes;
    const place = find("resource_group");
    if (group) {
      place.value = group;
      chooseGroup();
    }
    for (const [input, value] of amounts) {
      const wanted = changes[input.name] ?? value;
      if (input.value !== wanted || input.name in changes) typed();
      input.value = wanted;
    }
    const first = group ? place : numbers().find((input) => input.name in changes);
    form.dispatchEvent(new CustomEvent("launch:show", { detail: first }));
    first.focus();
    first.dispatchEvent(new Event("input", { bubbles: true }));
  };

  const outlook = document.getElementById("launch-outlook");
  outlook.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-fill]");
    if (button) fill(JSON.parse(button.dataset.fill));
  });
  // What is free changes without a key being pressed, and an old answer may be wrong by now.
  const ask = () => document.hidden || htmx.trigger(outlook, "look-again");
  setInterval(ask, 15000);
  document.addEventListener("visibilitychange", ask);
  let told = "";
  for (const name of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    outlook.addEventListener(name, () => {
      told = "";
      outlook.replaceChildren(document.getElementById("outlook-unknown").content.cloneNode(true));
    });
  }
  outlook.addEventListener("htmx:beforeSwap", ({ detail }) => {
    // The same again would only be read out again.
    if (detail.serverResponse === told) detail.shouldSwap = false;
    told = detail.serverResponse;
  });
});
