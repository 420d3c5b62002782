"use strict";
// What all pages share: the record, elements made of text alone, units, tabs, the tooltip, the choice of a theme.
//
// A view is a tab: page.view(id, title, draw), where draw(root) fills the section when it is first shown. Views talk
// through page.select(kernel) and page.onSelect(listener), a kernel being its index in record.plan.kernels. Each file of
// a view is one call of page.view, or one function that is called at once, so that none sees another's names.
const page = (() => {
  const record = JSON.parse(document.getElementById("record").textContent);
  const views = [];
  const listeners = [];

  // An element. Attributes that begin with "on" are listeners; children are nodes, or text; null is left out.
  function h(tag, attributes = {}, ...children) {
    return filled(document.createElement(tag), attributes, children);
  }

  function s(tag, attributes = {}, ...children) {
    return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  }

  function filled(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
    return element;
  }

  // A name that a model's author chose: isolated, with characters that are not seen, or turn text around, spelt out.
  function name(text) {
    return h("bdi", {}, plain(text));
  }

  function plain(text) {
    return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
      (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
  }

  const digits = (value, n) => value.toLocaleString("en", { minimumFractionDigits: n, maximumFractionDigits: n });

  // Three significant digits in the unit that fits.
  function scaled(value, units, step) {
    if (value === null || value === undefined) return "–";
    let unit = 0;
    let size = Math.abs(value);
    while (unit + 1 < units.length && size >= 999.5) [unit, size, value] = [unit + 1, size / step, value / step];
    return `${digits(value, size === 0 || size >= 100 || (unit === 0 && step === 1024) ? 0 : size >= 10 ? 1 : 2)} ${units[unit]}`;
  }

  const time = (ns) => scaled(ns === null || ns === undefined ? ns : ns / 1000, ["µs", "ms", "s"], 1000);
  const bytes = (n) => scaled(n, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
  const count = (n) => scaled(n, ["", "k", "M", "G", "T"], 1000).trimEnd();
  const percent = (share, n = 1) => (Number.isFinite(share) ? `${digits(100 * share, n)}%` : "–");
  const signed = (text) => (text === "–" ? text : text.startsWith("-") ? text.replace("-", "−") : `+${text}`);

  // A class of layouts as a colour: "plain", "channels last", "8c", "16c", "int8", "other", "any", "reorder".
  const colour = (family) => `var(--layout-${family.replace(" ", "-")})`;

  function swatch(family) {
    return h("span", { class: "swatch", style: `background:${colour(family)}`, "aria-hidden": "true" });
  }

  function legend(families) {
    return h("div", { class: "legend" }, families.map((each) => h("span", {}, swatch(each), each)));
  }

  // Rows of cells: text, a node, or a number with its text as [value, text].
  function table(header, rows, caption = null) {
    const cell = (tag, content) => {
      const isNumber = Array.isArray(content);
      return h(tag, isNumber ? { class: "number", "data-value": content[0] } : {}, isNumber ? content[1] : content);
    };
    const numeric = header.map((_, column) => rows.length > 0 && rows.every((row) => Array.isArray(row[column])));
    return h("div", { class: "scrolls", tabindex: "0" }, h("table", {},
      caption === null ? null : h("caption", {}, caption),
      h("thead", {}, h("tr", {}, header.map((each, column) =>
        h("th", { scope: "col", class: numeric[column] ? "number" : null }, each)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((each) => cell("td", each)))))));
  }

  const tip = h("div", { class: "tip", hidden: true, role: "status" });

  // Content beside the pointer, or beside an element that has the focus; nothing hides it.
  function showTip(event, ...content) {
    if (content.length === 0) {
      tip.hidden = true;
      return;
    }
    tip.replaceChildren(...content.flat(Infinity).filter((each) => each !== null));
    tip.hidden = false;
    const box = event.target.getBoundingClientRect();
    const [x, y] = event.clientX === undefined ? [box.right, box.top] : [event.clientX, event.clientY];
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - tip.offsetHeight - 4))}px`;
  }

  function view(id, title, draw) {
    views.push({ id, title, draw, isDrawn: false });
  }

  function show(id) {
    for (const each of views) {
      const isShown = each.id === id;
      each.tab.setAttribute("aria-selected", String(isShown));
      each.tab.tabIndex = isShown ? 0 : -1;
      each.section.hidden = !isShown;
      if (isShown) drawOnce(each);
    }
  }

  function drawOnce(each) {
    if (each.isDrawn) return;
    each.isDrawn = true;
    each.draw(each.section);
  }

  // What is known of the chosen kernel: filled by node.js, placed by the view of the network.
  const panel = h("aside", { id: "node", "aria-label": "The chosen kernel", "aria-live": "polite" });

  let selected = null;

  function select(kernel) {
    selected = kernel;
    for (const listener of listeners) listener(kernel);
  }

  // The parts of the address behind "#": a view, and what a view or a script keeps there, such as "piece=2".
  const address = () => location.hash.slice(1).split("&");

  // Goes to a view, where a kernel may be chosen there.
  function open(id, kernel = null) {
    location.hash = [id, ...address().slice(1)].join("&");
    show(id);
    if (kernel !== null) select(kernel);
  }

  function toggleTheme() {
    const isDark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
      (document.documentElement.style.colorScheme === "" && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.style.colorScheme = isDark ? "light" : "dark";
  }

  // Puts the page together: a header of nodes, then the views, the one that the address names first.
  function start(...heading) {
    const theme = h("button", { type: "button", onclick: toggleTheme }, "Light / dark");
    const tabs = h("nav", { role: "tablist", "aria-label": "Views" });
    const main = h("main");
    for (const each of views) {
      each.section = h("section", { role: "tabpanel", id: each.id, "aria-labelledby": `tab-${each.id}`, hidden: true });
      each.tab = h("button", { type: "button", role: "tab", id: `tab-${each.id}`, "aria-controls": each.id,
        onclick: () => open(each.id) }, each.title);
      tabs.append(each.tab);
      main.append(each.section);
    }
    tabs.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step === undefined) return;
      const at = views.findIndex((each) => each.tab === document.activeElement);
      const next = views[(at + step + views.length) % views.length];
      next.tab.focus();
      open(next.id);
    });
    const [first, ...others] = heading;
    document.body.append(h("header", {}, h("div", { class: "row" }, first, theme), others), ...(views.length > 1 ? [tabs] : []), main, tip);
    const fromAddress = () => (views.find((each) => each.id === address()[0]) || views[0]).id;
    addEventListener("hashchange", () => show(fromAddress()));
    addEventListener("beforeprint", () => views.forEach(drawOnce));
    addEventListener("keydown", (event) => event.key === "Escape" && showTip(event));
    show(fromAddress());
  }

  return {
    record, h, s, name, plain, digits, time, bytes, count, percent, signed, colour, swatch, legend, table, showTip,
    view, open, start, address, select, panel,
    get selected() { return selected; },
    onSelect: (listener) => listeners.push(listener),
  };
})();
