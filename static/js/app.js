// @ts-check
// The form that leads into an app sends itself; without scripts there is its button.
document.getElementById("app-entry").submit();
