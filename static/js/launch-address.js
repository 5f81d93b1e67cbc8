// @ts-check
// The launch form in the address: what differs from the usual, under the names of the fields, without secrets.
class LaunchAddress {
  static LONGEST = 3000; // servers cut off longer ones
  static KEPT = ["like", "like_run", "recent", "from"];
  static PARAMETER = "p."; // of a template
  static ROLES = ["name", "count", "image", "cpu", "mem", "slots", "command", "more"].map((part) => `roles.${part}`);
  static LONG = [["startup_command"], ["matrix"], ["environ.value"], ["environ.name"], LaunchAddress.ROLES, ["files.path"]];
  static MARKS = "launch-addresses";

  constructor(form, notice) {
    this.form = form;
    this.notice = notice;
    this.usual = JSON.parse(form.dataset.usual);
    this.leftOut = JSON.parse(form.dataset.leftOut);
    this.secretName = new RegExp(form.dataset.secretNames, "i");
    this.secretValue = new RegExp(form.dataset.secretValues);
    this.kept = [...new URLSearchParams(location.search)].filter(([name, value]) => value && (LaunchAddress.KEPT.includes(name) || name.startsWith(LaunchAddress.PARAMETER)));
    // Who has filled the form in this very window knows what is in it.
    if (notice && this.marks().includes(LaunchAddress.withoutStep(location.search))) notice.remove();
  }
  of(step) {
    const query = this.query();
    query.set("step", step);
    return `${location.pathname}?${query}`;
  }
  write(step) {
    this.put("replaceState", step);
  }
  push(step) {
    this.put("pushState", step);
  }
  put(action, step) {
    const address = this.of(step);
    if (address === location.pathname + location.search) return;
    history[action](null, "", address);
    if (!this.notice?.isConnected) this.mark(LaunchAddress.withoutStep(location.search));
  }
  query() {
    const query = new URLSearchParams(this.kept);
    const sent = LaunchAddress.group(new FormData(this.form));
    const valuesOf = (name) => (sent.get(name) ?? []).map(([, value]) => value);
    const preset = valuesOf("preset")[0];
    for (const name of new Set([...Object.keys(this.usual), ...sent.keys()])) {
      if (this.leftOut.includes(name) || this.form.elements[name]?.disabled) continue;
      if (preset && (["cpu", "mem", "mem_unit", "shm", "shm_unit"].includes(name) || name.startsWith("slot."))) continue;
      if (name === "depends_when" && !sent.has("depends_on")) continue; // without sessions to wait for it says nothing
      const values = valuesOf(name).map((value) => this.shown(name, value));
      if (LaunchAddress.same(values, this.usual[name] ?? [])) continue;
      for (const value of values.length ? values : [""]) query.append(name, value);
    }
    this.addVariables(query, valuesOf("environ.name"), valuesOf("environ.value"));
    if (document.getElementById("roles")) this.addRoles(query, LaunchAddress.ROLES.map(valuesOf));
    for (const names of LaunchAddress.LONG) {
      if (query.toString().length > LaunchAddress.LONGEST) names.forEach((name) => query.delete(name));
    }
    return query;
  }
  shown(name, value) {
    const moment = name === "starts_at" ? new Date(value) : null;
    if (moment && !Number.isNaN(moment.getTime())) return moment.toISOString(); // six digits of a year are no date
    return name === "startup_command" && this.secretValue.test(value) ? "" : value;
  }
  // Cells belong together by their place, so all columns are written, with those that are empty, or none.
  addRoles(query, columns) {
    const rows = LaunchAddress.rowsOf(columns);
    const usual = LaunchAddress.rowsOf(LaunchAddress.ROLES.map((name) => this.usual[name] ?? []));
    if (JSON.stringify(rows) === JSON.stringify(usual)) return;
    // Without its secret a role would be another one: such roles are typed again as a whole.
    if (rows.some((row) => row.slice(-2).some((text) => this.secretValue.test(text)) || this.secretName.test(row.at(-1)))) return;
    for (const row of rows.length ? rows : [LaunchAddress.ROLES.map(() => "")]) {
      LaunchAddress.ROLES.forEach((name, at) => query.append(name, row[at]));
    }
  }
  addVariables(query, names, values) {
    const rows = names.map((name, index) => [name, values[index] ?? ""]).filter((row) => row.some((text) => text.trim()));
    const usual = (this.usual["environ.name"] ?? []).map((name, index) => [name, this.usual["environ.value"]?.[index] ?? ""]);
    if (JSON.stringify(rows) === JSON.stringify(usual)) return;
    if (!rows.length) query.append("environ.name", "");
    for (const [name, value] of rows) {
      query.append("environ.name", name);
      query.append("environ.value", this.secretName.test(name) || this.secretValue.test(value) ? "" : value);
    }
  }
  marks() {
    try {
      return JSON.parse(sessionStorage.getItem(LaunchAddress.MARKS)) ?? [];
    } catch {
      return [];
    }
  }
  mark(search) {
    try {
      sessionStorage.setItem(LaunchAddress.MARKS, JSON.stringify([search, ...this.marks().filter((each) => each !== search)].slice(0, 50)));
    } catch {
      // Storage is blocked: the notice then shows after a reload, too.
    }
  }
  static same(values, usual) {
    const plain = (list) => JSON.stringify(list.filter(Boolean));
    return plain(values) === plain(usual);
  }
  static rowsOf(columns) {
    const rows = Array.from({ length: Math.max(...columns.map((texts) => texts.length)) }, (_, at) => columns.map((texts) => texts[at] ?? ""));
    while (rows.length && !rows.at(-1).some((text) => text.trim())) rows.pop();
    return rows;
  }
  static group(pairs) {
    const found = new Map();
    for (const pair of pairs) found.set(pair[0], [...(found.get(pair[0]) ?? []), pair]);
    return found;
  }
  static withoutStep(search) {
    const query = new URLSearchParams(search);
    query.delete("step");
    return query.toString();
  }
  // What the browser's clock says of the form, before another script looks at its fields or sends them.
  static tellTime(form) {
    form.elements.time_zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const start = form.elements.starts_at;
    if (start?.dataset.moment) start.value = LaunchAddress.local(start.dataset.moment);
  }
  // A moment as the field for one shows it, by this browser's clock.
  static local(text) {
    const moment = new Date(text);
    if (Number.isNaN(moment.getTime())) return "";
    return new Date(moment.getTime() - moment.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
  }
}
LaunchAddress.tellTime(document.getElementById("launch"));
