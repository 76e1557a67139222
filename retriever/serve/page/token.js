/** The token: asked for in a dialog, refused there where no request could carry it, asked for again by a button. */

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
      ? "That cannot be a token: one has only Latin letters without accents, digits and signs, and no spaces."
      : "A token has at least one character.";
    input.setAttribute("aria-invalid", "true");
    return;
  }
  given = true;
  giveToken(token);
}

server.addEventListener("token", ({ detail }) => {
  if (detail.wrong) why.textContent = "That token is not the server's. Try again.";
  ask();
});
byId("token-form").addEventListener("submit", submit);
// Escape closes a dialog whatever the page wants; the way back stays on the page.
dialog.addEventListener("close", () => {
  needed.hidden = given;
  if (!given) byId("token-button").focus();
});
byId("token-button").addEventListener("click", ask);
