// @ts-check
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
    form.dataset.step = String(Math.min(Math.max(wanted, 1), steps.length));
    launch.classList.toggle("btn-primary", isLast()); // before it is the quick way, not the usual one
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
    if (isLast()) look();
    else launch.disabled = false;
    scrollTo({ top: 0, behavior: "instant" });
    document.getElementById(`step-${number()}-title`).focus({ preventScroll: true });
  };
  const go = (wanted) => {
    address.write(number()); // of the step that is left
    faults.pass(steps[number() - 1]);
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
    if (button.dataset.to) faults.lead({ name: button.dataset.to, row: button.dataset.row });
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

  // What the portal says of the form goes to the steps and to the fields. What is only missing is told calmly, until a
  // field or the review says so.
  const outlook = document.getElementById("launch-outlook");
  const faults = new Faults(form, (wrong) => {
    const needed = document.getElementById("still-needed");
    if (needed) {
      needed.hidden = wrong.size > 0;
      /** @type {Part} */ (needed.previousElementSibling).hidden = !needed.hidden;
    }
    for (const each of document.querySelectorAll(".step-mark")) {
      each.hidden = !wrong.has(each.id.replace("step-mark-", ""));
    }
  });
  const judge = () => {
    launch.disabled = isLast() && faults.any;
    if (faults.any) launch.setAttribute("aria-describedby", "launch-obstacle");
    else launch.removeAttribute("aria-describedby");
  };
  const mark = () => {
    if (!review.querySelector(".review")) return;
    faults.take(review.querySelector("#launch-faults"), true);
    judge();
  };
  review.addEventListener("htmx:afterSwap", mark);
  // The line at the foot is told more often: the review follows it.
  outlook.addEventListener("htmx:afterRequest", ({ detail }) => {
    const told = outlook.querySelector("#outlook-faults");
    if (!detail.successful || !told) return;
    const before = faults.signature;
    faults.take(told);
    judge();
    if (isLast() && before !== faults.signature) look();
  });
  for (const name of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    review.addEventListener(name, () => (launch.disabled = false)); // the launch itself will say what is wrong
  }
  let again;
  form.addEventListener("change", () => {
    clearTimeout(again);
    if (isLast()) again = setTimeout(look, 300);
  });
  show(number());
  mark();
  if (!review.querySelector(".review") && isLast()) look();

  // Enter in a field goes on; only the button launches, from any step where nothing is wrong, and asks when nothing would
  // be kept.
  const isMounted = (rights = "") => form.querySelector(`[data-mount]:has([name=mounts]:checked)${rights}`) !== null;
  const asks = () => {
    if (isMounted(":has(option[data-writes]:checked)")) return false;
    try {
      return !localStorage.getItem("launch-without-folder");
    } catch {
      return true;
    }
  };
  const more = document.getElementById("outlook-more");
  more.addEventListener("click", () => more.setAttribute("aria-expanded", String(more.getAttribute("aria-expanded") !== "true")));
  const question = document.getElementById("no-folder");
  form.addEventListener("submit", (event) => {
    address.write(number());
    const button = event.submitter;
    if (button?.value === "owner") return;
    if (button?.value !== "launch") {
      event.preventDefault();
      if (!isLast()) go(number() + 1);
    } else if (!isLast() && faults.any) {
      event.preventDefault();
      go(steps.length);
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
      for (const part of question.querySelectorAll("[data-when]")) part.hidden = (part.dataset.when === "read-only") !== isMounted();
      question.showModal();
    }
  });
});
