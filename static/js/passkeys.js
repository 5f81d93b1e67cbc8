// @ts-check
// Forms that carry what a passkey says: data-passkey is "get" (prove) or "create" (a new one). The questions come with the
// page, or are asked for when they are needed, because they are good once.
(() => {
  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));
  const text = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const known = (list) => (list || []).map((one) => ({ ...one, id: bytes(one.id) }));

  const read = (options) => {
    const asked = { ...options.publicKey, challenge: bytes(options.publicKey.challenge) };
    if (asked.user) asked.user = { ...asked.user, id: bytes(asked.user.id) };
    if (asked.allowCredentials) asked.allowCredentials = known(asked.allowCredentials);
    if (asked.excludeCredentials) asked.excludeCredentials = known(asked.excludeCredentials);
    return asked;
  };

  const write = (credential) => {
    const said = credential.response;
    const response = { clientDataJSON: text(said.clientDataJSON) };
    if (said.attestationObject) {
      response.attestationObject = text(said.attestationObject);
      response.transports = said.getTransports ? said.getTransports() : [];
    } else {
      response.authenticatorData = text(said.authenticatorData);
      response.signature = text(said.signature);
      response.userHandle = said.userHandle ? text(said.userHandle) : null;
    }
    const { id, type, authenticatorAttachment } = credential;
    const clientExtensionResults = credential.getClientExtensionResults();
    return { id, type, rawId: text(credential.rawId), authenticatorAttachment, clientExtensionResults, response };
  };

  const questions = async (form) => {
    if (form.dataset.options) return JSON.parse(document.getElementById(form.dataset.options).textContent);
    const answer = await fetch(form.dataset.optionsUrl, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw Object.assign(new Error(answer.statusText), { name: "Unasked" });
    return (await answer.json()).request_options;
  };

  const ask = async (form) => {
    const publicKey = read(await questions(form));
    if (form.dataset.passkey === "get") return navigator.credentials.get({ publicKey });
    if (form.elements.passwordless?.checked) {
      publicKey.authenticatorSelection = {
        ...publicKey.authenticatorSelection,
        residentKey: "required",
        requireResidentKey: true,
        userVerification: "required",
      };
    }
    return navigator.credentials.create({ publicKey });
  };

  for (const form of document.querySelectorAll("form[data-passkey]")) {
    const button = form.querySelector("[type=submit]");
    const state = form.querySelector(".passkey-state");
    if (!window.isSecureContext || !window.PublicKeyCredential) {
      state.textContent = state.dataset.impossible;
      continue;
    }
    button.disabled = false;
    state.textContent = "";
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      state.textContent = state.dataset.waiting;
      try {
        form.elements.credential.value = JSON.stringify(write(await ask(form)));
        form.submit();
      } catch (error) {
        state.textContent = state.dataset[error.name.charAt(0).toLowerCase() + error.name.slice(1)] || error.message;
        button.disabled = false;
      }
    });
  }
})();
