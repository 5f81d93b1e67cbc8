// @ts-check
// Sends one chat to an endpoint, as any caller would, and shows the answer piece by piece.
(() => {
  const box = document.querySelector("[data-call-box]");
  if (!box) return;
  const form = box.querySelector("form");
  const [send, stop] = form.querySelectorAll("button");
  const status = box.querySelector("[data-call-status]");
  const answer = box.querySelector("[data-call-answer]");
  const most = 200000;
  let under = null;

  const show = (text) => {
    answer.textContent = (answer.textContent + text).slice(0, most);
    answer.hidden = !answer.textContent;
  };

  // What is no event of a chat is shown as it came.
  const pieceOf = (line) => {
    if (!line.startsWith("data: ")) return line ? `${line}\n` : "";
    if (line === "data: [DONE]") return "";
    try {
      return JSON.parse(line.slice(6)).choices[0].delta.content || "";
    } catch {
      return `${line}\n`;
    }
  };

  const read = async (response, startedAt) => {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let first = null;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      first ??= performance.now() - startedAt;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      lines.forEach((line) => show(pieceOf(line.trimEnd())));
    }
    show(pieceOf(rest));
    return first ?? performance.now() - startedAt;
  };

  const ask = async () => {
    const startedAt = performance.now();
    const token = form.querySelector("input").value.trim();
    const response = await fetch(`${box.dataset.callBox}/v1/chat/completions`, {
      method: "POST",
      credentials: "omit",
      signal: under.signal,
      headers: { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) },
      body: JSON.stringify({
        model: box.dataset.model,
        stream: true,
        max_tokens: 200,
        messages: [{ role: "user", content: form.querySelector("textarea").value }],
      }),
    });
    const first = await read(response, startedAt);
    status.textContent = box.dataset.done.replace("{status}", response.status)
      .replace("{first}", Math.round(first)).replace("{all}", Math.round(performance.now() - startedAt));
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (under) return;
    under = new AbortController();
    [send.disabled, stop.hidden, answer.hidden, answer.textContent] = [true, false, true, ""];
    status.textContent = box.dataset.sending;
    try {
      await ask();
    } catch (error) {
      status.textContent = error.name === "AbortError" ? box.dataset.stopped : box.dataset.unreachable;
    } finally {
      [under, send.disabled, stop.hidden] = [null, false, true];
    }
  });
  stop.addEventListener("click", () => under?.abort());
})();
