// The launcher: one step of the form at a time, in any order, and what is wrong with it. Without this, all steps stand
// beneath each other.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("launch");
  const steps = [...form.querySelectorAll(".step")];
  const review = document.getElementById("launch-review");
  const launch = document.getElementById("launch-now");
  const address = new LaunchAddress(form, document.getElementById("from-link"));
  const number = () => Number(form.dataset.step);
  const isLast = () => number() === steps.length;

  const show = (wanted) => {
    form.dataset.step = Math.min(Math.max(wanted, 1), steps.length);
    for (const link of document.querySelectorAll(".step-list a")) {
      link.href = address.of(link.dataset.go);
      if (Number(link.dataset.go) === number()) link.setAttribute("aria-current", "step");
      else link.removeAttribute("aria-current");
    }
  };
  const look = () => {
    launch.disabled = true; // until it is known that nothing is wrong
    htmx.trigger(review, "look");
  };
  const arrive = () => {
    look();
    scrollTo({ top: 0, behavior: "instant" });
    document.getElementById(`step-${number()}-title`).focus({ preventScroll: true });
  };
  const go = (wanted) => {
    address.write(number()); // of the step that is left
    show(wanted);
    address.push(number());
    arrive();
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-go]");
    if (!button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const wanted = { previous: number() - 1, next: number() + 1 }[button.dataset.go] ?? Number(button.dataset.go);
    go(wanted);
  });
  // Back and Forward walk the steps; what was typed since stays.
  addEventListener("popstate", () => {
    const asked = Number(new URLSearchParams(location.search).get("step")) || 1;
    if (asked === number()) return;
    show(asked);
    address.write(number());
    arrive();
  });
  let typed;
  for (const kind of ["input", "change"]) {
    form.addEventListener(kind, () => {
      clearTimeout(typed);
      typed = setTimeout(() => address.write(number()), 500);
    });
  }
  // A part of the page that wants to be seen says so.
  form.addEventListener("launch:show", ({ detail }) => {
    const step = steps.indexOf(detail.closest(".step")) + 1;
    if (step && step !== number()) go(step);
  });

  // What the portal says of the form goes to the steps and to the fields.
  const mark = () => {
    const root = review.querySelector(".review");
    if (!root) return;
    const wrong = root.dataset.wrong.split(" ").filter(Boolean);
    for (const each of document.querySelectorAll(".step-mark")) {
      each.hidden = !wrong.includes(each.id.replace("step-mark-", ""));
    }
    launch.disabled = wrong.length > 0;
    if (wrong.length) launch.setAttribute("aria-describedby", "launch-obstacle");
    else launch.removeAttribute("aria-describedby");
    faults.show(review.querySelector("#launch-faults")?.content.children ?? []);
  };
  const faults = new Faults(form);
  review.addEventListener("htmx:afterSwap", mark);
  for (const name of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    review.addEventListener(name, () => (launch.disabled = false)); // the launch itself will say what is wrong
  }
  let again;
  form.addEventListener("change", () => {
    clearTimeout(again);
    if (isLast() || faults.any()) again = setTimeout(look, 300);
  });
  show(number());
  mark();
  if (!review.querySelector(".review") && isLast()) look();

  // Enter in a field goes on; only the button of the last step launches, and asks when nothing would be kept.
  const asks = () => {
    try {
      return !localStorage.getItem("launch-without-folder");
    } catch {
      return true;
    }
  };
  const question = document.getElementById("no-folder");
  form.addEventListener("submit", (event) => {
    address.write(number());
    const button = event.submitter;
    if (button?.value === "owner") return;
    if (button?.value !== "launch" || !isLast()) {
      event.preventDefault();
      if (!isLast()) go(number() + 1);
    } else if (button.hasAttribute("data-confirmed")) {
      if (document.getElementById("no-folder-again").checked) {
        try {
          localStorage.setItem("launch-without-folder", "yes");
        } catch {
          // Storage is blocked: it is asked again.
        }
      }
    } else if (asks()) {
      event.preventDefault();
      question.showModal();
    }
  });
});

// Messages at the fields that they are about, as the page itself would have brought them.
class Faults {
  constructor(form) {
    this.form = form;
  }
  any() {
    return this.form.querySelector(".step .invalid-feedback") !== null;
  }
  show(told) {
    for (const old of this.form.querySelectorAll(".step .invalid-feedback")) old.remove();
    for (const field of this.form.querySelectorAll("[aria-invalid]")) {
      field.removeAttribute("aria-invalid");
      field.classList.remove("is-invalid");
      this.describe(field, (ids) => ids.filter((id) => !id.endsWith("_error")));
    }
    for (const fault of told) this.add(fault.dataset.fault, fault.innerHTML, fault.dataset.row);
  }
  // Of a field with rows, the row that is meant has its number.
  add(name, html, row) {
    const field = row
      ? this.form.querySelectorAll(`[name="${CSS.escape(name)}.name"]`)[row]
      : document.getElementById(`id_${name}`) ?? this.form.querySelector(`[name="${CSS.escape(name)}"], [name^="${CSS.escape(name)}."]`);
    const place = row ? field?.parentElement : field?.closest(".field");
    if (!place) return;
    const id = row ? `id_${name}_${row}_error` : `id_${name}_error`;
    let said = document.getElementById(id);
    if (!said) {
      said = Object.assign(document.createElement("div"), { id, className: "invalid-feedback" });
      place.append(said);
    }
    said.append(Object.assign(document.createElement("div"), { innerHTML: html }));
    for (const shown of [field, document.getElementById(field.dataset.standIn)]) {
      if (!shown) continue;
      shown.setAttribute("aria-invalid", "true");
      if (shown.matches(".form-control, .form-select")) shown.classList.add("is-invalid");
      this.describe(shown, (ids) => [...ids.filter((each) => each !== id), id]);
    }
  }
  describe(field, change) {
    const ids = change((field.getAttribute("aria-describedby") ?? "").split(" ").filter(Boolean));
    if (ids.length) field.setAttribute("aria-describedby", ids.join(" "));
    else field.removeAttribute("aria-describedby");
  }
}
