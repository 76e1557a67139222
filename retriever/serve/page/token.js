/** The dialog for the token, and the button that opens it again. */

import { giveToken, isToken, server } from "./api.js";
import { byId } from "./dom.js";

const dialog = byId("token");
const input = byId("token-value");
const why = byId("token-why");
const needed = byId("token-needed");
let given = false;

function ask() {
  given = false;
  needed.hidden = true;
  input.value = "";
  input.removeAttribute("aria-invalid");
  if (!dialog.open) dialog.showModal();
}

function submit(event) {
  const token = input.value.trim();
  if (!isToken(token)) {
    event.preventDefault();
    why.textContent = token
      ? "This is not a token: a token consists of ASCII letters, digits and punctuation, without spaces."
      : "Enter a token.";
    input.setAttribute("aria-invalid", "true");
    return;
  }
  given = true;
  giveToken(token);
}

server.addEventListener("token", ({ detail }) => {
  if (detail.wrong) why.textContent = "The server refused this token. Try again.";
  ask();
});
byId("token-form").addEventListener("submit", submit);
// Escape always closes a dialog, so a button on the page opens it again.
dialog.addEventListener("close", () => {
  needed.hidden = given;
  if (!given) byId("token-button").focus();
});
byId("token-button").addEventListener("click", ask);
