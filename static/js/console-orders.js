// @ts-check
// The console's way to its session. Orders have numbers, by which their answers come back. Code that the session has not
// taken yet is kept in the tab, outlives a reload, and is sent again after each break: run ids are chosen here, so that the
// same run is never run twice.
window.portal = window.portal || {};
(() => {
  const resendAfter = 2000;
  const largestFrame = 200000; // characters; the portal hangs up on a message of more than 1 MiB

  const kept = (name) => {
    let state = { draft: "", unsent: [] };
    try {
      state = { ...state, ...JSON.parse(sessionStorage.getItem(name)) };
    } catch { /* storage is blocked: it lasts as long as the page */ }
    const save = (change) => {
      Object.assign(state, change);
      try {
        sessionStorage.setItem(name, JSON.stringify(state));
      } catch { /* storage is blocked or full */ }
    };
    return { state, save };
  };

  // `onRun` is told of each change of a run, `onRefused` of code that is not run, with the reason.
  portal.consoleOrders = (address, post, { onReady, onRun, onConnection, onRefused, onAway, onEnd }) => {
    const { state, save } = kept(`console ${address}`);
    const answers = new Map(); // number of an order → what is done with its answer
    let number = 0;
    let isReady = false;
    let sending = "";

    const send = (type, more = {}, /** @type {(answer: Answer) => void} */ then = () => {}) => {
      number += 1;
      answers.set(number, then);
      if (socket.send(JSON.stringify({ type, id: number, ...more })) !== false) return true;
      answers.delete(number);
      return false;
    };
    const ask = (type, more) => new Promise((resolve, reject) => {
      const isSent = send(type, more, (answer) => (answer.error ? reject(answer.error) : resolve(answer)));
      if (!isSent) reject({ code: "away" });
    });
    // One after the other, so that code runs in the order in which it was written.
    const sendNext = () => {
      const run = state.unsent.find((one) => !one.reason);
      if (!isReady || sending || !run) return;
      const { run_id, code, context, language } = run;
      sending = run_id;
      const way = code.length > largestFrame ? post : (order, then) => send("run", order, then);
      way({ run_id, code, context, language }, ({ error }) => {
        if (sending !== run_id) return; // the connection broke meanwhile: it is sent anew
        sending = "";
        if (error?.is_passing) return setTimeout(sendNext, resendAfter);
        if (error) {
          Object.assign(run, { reason: error.message });
          onRefused(run, error.message);
        }
        save({ unsent: state.unsent.filter((one) => one !== run || error) });
        sendNext();
      });
    };
    const hear = (text) => {
      const message = JSON.parse(text);
      if (message.type === "ready") onReady();
      else if (message.type === "connection") onConnection(message.is_up);
      else if (message.type === "run") onRun(message);
      else if (message.type === "answer") {
        const then = answers.get(message.id);
        answers.delete(message.id);
        then?.(message);
      }
    };
    const reset = () => {
      answers.clear();
      isReady = false;
      sending = "";
    };
    const socket = portal.steadySocket(() => portal.address(address), {
      onOpen: reset,
      onBytes: () => {},
      onMessage: hear,
      onAway: (_, now) => (reset(), onAway(now)),
      onEnd: (code, reason, isSignedOut) => (reset(), onEnd(code, reason, isSignedOut)),
    });
    return {
      state, save, send, ask,
      again: () => socket.again(),
      // Takes code that is to be run; it is sent when that is possible.
      submit: (run) => {
        save({ unsent: [...state.unsent, run], draft: "" });
        sendNext();
      },
      withdraw: (runId) => save({ unsent: state.unsent.filter((one) => one.run_id !== runId) }),
      attach: (after) => {
        // Code that is sent now may have ended before its events are read: it is asked for by name.
        const unsent = Object.fromEntries(state.unsent.map((run) => [run.run_id, 0]));
        socket.send(JSON.stringify({ type: "attach", after: { ...unsent, ...after } }));
        isReady = true;
        sendNext();
      },
    };
  };
})();
