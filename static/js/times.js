// Keeps <time data-ago> and <time data-elapsed> fresh: relative words in the text, the exact local time on hover.
(() => {
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

  const span = (seconds) => {
    const first = units.findIndex(([, size]) => seconds >= size);
    if (first < 0) return "0 s";
    const [name, size] = units[first];
    const text = `${Math.floor(seconds / size)} ${name}`;
    if (first > 1) return text;
    const [below, smaller] = units[first + 1];
    const rest = Math.floor((seconds % size) / smaller);
    return rest ? `${text} ${rest} ${below}` : text;
  };
  const ago = (moment, now) => {
    const seconds = Math.round((now - moment) / 1000);
    if (Math.abs(seconds) < 10) return "just now";
    const [name, size] = units.find(([, unit]) => Math.abs(seconds) >= unit);
    const text = `${Math.floor(Math.abs(seconds) / size)} ${name}`;
    return seconds > 0 ? `${text} ago` : `in ${text}`;
  };
  const clock = (seconds) => {
    const two = (number) => String(number).padStart(2, "0");
    const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60)];
    return seconds >= 86400 ? span(seconds) : `${hours}:${two(minutes)}:${two(Math.floor(seconds % 60))}`;
  };
  const put = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };
  const refresh = () => {
    if (document.hidden) return;
    const now = Date.now();
    for (const element of document.querySelectorAll("time[data-ago]")) {
      const moment = Date.parse(element.dateTime);
      put(element, ago(moment, now));
      element.title ||= exact.format(moment);
    }
    for (const element of document.querySelectorAll("time[data-elapsed]")) {
      const start = Date.parse(element.dateTime);
      const end = element.dataset.elapsed ? Date.parse(element.dataset.elapsed) : now;
      put(element, clock(Math.max(0, (end - start) / 1000)));
    }
    for (const element of document.querySelectorAll("time[data-exact]")) put(element, exact.format(Date.parse(element.dateTime)));
  };
  setInterval(refresh, 1000);
  document.addEventListener("visibilitychange", refresh);
  document.addEventListener("DOMContentLoaded", refresh);
  document.addEventListener("htmx:load", refresh);
})();
