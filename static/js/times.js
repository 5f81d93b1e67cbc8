// @ts-check
// Keeps <time data-ago> and <time data-elapsed> fresh: relative words in the text, the exact local time on hover.
// The words are the page's (#time-words); dates are written as the page's language and the browser's region do.
(() => {
  const language = document.documentElement.lang;
  const region = navigator.languages.find((one) => one.split("-")[0] === language.split("-")[0]);
  const exact = new Intl.DateTimeFormat(region || language, { dateStyle: "medium", timeStyle: "medium" });
  const date = new Intl.DateTimeFormat(region || language, { dateStyle: "medium", timeStyle: "short" });
  const today = new Intl.DateTimeFormat(region || language, { timeStyle: "short" });
  const sizes = [86400, 3600, 60, 1];
  let words;

  const said = (place, number) => words.units.split("|")[place].replace("%(number)s", number);
  const span = (seconds, closely) => {
    const place = sizes.findIndex((size) => seconds >= size);
    const text = said(place, Math.floor(seconds / sizes[place]));
    const rest = Math.floor((seconds % sizes[place]) / sizes[place + 1]);
    return closely && place < 2 && rest ? `${text} ${said(place + 1, rest)}` : text;
  };
  // What comes is told more closely than what was, because people plan by it.
  const ago = (moment, now, isDue) => {
    const seconds = Math.round((now - moment) / 1000);
    if (isDue && seconds > -10) return words.due;
    if (Math.abs(seconds) < 10) return words.now;
    if (seconds > 0) return words.ago.replace("%(time)s", span(seconds, false));
    return words.in.replace("%(time)s", span(-seconds, true));
  };
  const clock = (seconds) => {
    const two = (number) => String(number).padStart(2, "0");
    const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60)];
    return seconds >= 86400 ? span(seconds, true) : `${hours}:${two(minutes)}:${two(Math.floor(seconds % 60))}`;
  };
  const put = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };
  const refresh = () => {
    words ??= document.getElementById("time-words")?.dataset;
    if (document.hidden || !words) return;
    const now = Date.now();
    for (const element of document.querySelectorAll("time[data-ago]")) {
      const moment = Date.parse(element.dateTime);
      put(element, ago(moment, now, element.dataset.ago === "due"));
      element.title ||= exact.format(moment);
    }
    for (const element of document.querySelectorAll("time[data-elapsed]")) {
      const start = Date.parse(element.dateTime);
      const end = element.dataset.elapsed ? Date.parse(element.dataset.elapsed) : now;
      put(element, clock(Math.max(0, (end - start) / 1000)));
    }
    for (const element of document.querySelectorAll("time[data-exact]")) {
      const moment = new Date(element.dateTime);
      const isToday = moment.toDateString() === new Date(now).toDateString();
      put(element, (element.dataset.exact !== "short" ? exact : isToday ? today : date).format(moment));
    }
  };
  setInterval(refresh, 1000);
  document.addEventListener("visibilitychange", refresh);
  document.addEventListener("DOMContentLoaded", refresh);
  document.addEventListener("htmx:load", refresh);
})();
