"use strict";
// Files that are chosen or dropped are sent as they are, one by one; text is copied; the focus stays where htmx renews a part.
const status = (drop, text) => { drop.querySelector("[role=status]").textContent = text; };

const MOST = 64 * 2 ** 20; // bytes that the server takes

async function send(drop, files) {
  for (const file of files) {
    if (file.size > MOST) { status(drop, `${file.name} is larger than 64 MiB. Copy it into the folder that is served.`); return; }
    status(drop, `Sending ${file.name}`);
    let answer, text;
    try {
      answer = await fetch(`/files?name=${encodeURIComponent(file.name)}`, { method: "PUT", body: file });
      text = await answer.text();
    } catch (error) {
      status(drop, `${file.name} was not sent: it is a folder, or the server has ended.`);
      return;
    }
    if (!answer.ok) { status(drop, text); return; }
    if (files.length === 1) { location.assign(text); return; }
  }
  location.reload();
}

// The second click of two sends nothing.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.getAttribute("method") !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
  setTimeout(() => { delete form.dataset.sent; }, 2000);
});
document.addEventListener("change", (event) => {
  const drop = event.target.closest(".drop");
  if (drop && event.target.type === "file") send(drop, event.target.files);
});
for (const name of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    const drop = event.target.closest && event.target.closest(".drop");
    if (!drop) return;
    event.preventDefault();
    drop.classList.toggle("over", name === "dragover");
    if (name === "drop") send(drop, event.dataTransfer.files);
  });
}
document.addEventListener("click", async (event) => {
  const text = event.target.dataset && event.target.dataset.copy;
  if (text === undefined) return;
  await navigator.clipboard.writeText(text);
  const before = event.target.textContent;
  event.target.textContent = "Copied";
  setTimeout(() => { event.target.textContent = before; }, 2000);
});
// Parts that were opened stay open where htmx renews them, and the focus stays in them.
const opened = new Set();
let focused = "";
document.addEventListener("toggle", (event) => {
  if (event.target.id) opened[event.target.open ? "add" : "delete"](event.target.id);
}, true);
document.addEventListener("htmx:beforeSwap", () => { focused = document.activeElement?.id; });
document.addEventListener("htmx:afterSettle", () => {
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus({ preventScroll: true });
});
// A line that is named leads to it in the text.
document.addEventListener("click", (event) => {
  const number = Number(event.target.dataset && event.target.dataset.line);
  const text = document.getElementById("text");
  if (!number || !text) return;
  const lines = text.value.split("\n"), before = lines.slice(0, number - 1).join("\n").length + (number > 1);
  text.focus();
  text.setSelectionRange(before, before + (lines[number - 1] || "").length);
  text.scrollTop = (text.scrollHeight / lines.length) * Math.max(0, number - 4);
});
