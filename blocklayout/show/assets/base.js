"use strict";
// What all pages share: the record, elements made of text alone, units, tabs, the tooltip, pictures whose marks keys
// reach, the choice of a theme.
//
// A view is a tab: page.view(id, title, draw), where draw(root) fills the section when it is first shown, and may return
// a function for each time that it is shown. Views talk through page.select(kernel) and page.onSelect(listener), a kernel
// being its index in record.plan.kernels. What a link shows again is kept in the address, by page.keep({ key: value }),
// and read by page.kept(key), at first and when page.onAddress calls its listeners. Layouts that
// the reader wants kernels to write are in the Map page.pins, from a kernel's name, or another key of a pin, to a layout;
// page.pin(key, layout) and page.resetPins() change it and call the listeners of page.onPins. Each file of a view is one
// call of page.view, or one function that is called at once, so that none sees another's names.
const page = (() => {
  const record = JSON.parse(document.getElementById("record").textContent);
  const views = [];
  const listeners = [];
  const pins = new Map();
  const pinListeners = [];
  const addressListeners = [];

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

  // A name that a model's author chose: isolated, with characters that are not seen, or turn text around, spelt out. Of a
  // very long one the middle is left out.
  function name(text) {
    const whole = plain(text);
    if (whole.length <= LONGEST_NAME) return h("bdi", {}, whole);
    return h("bdi", { title: shortened(whole, 10 * LONGEST_NAME) }, shortened(whole, LONGEST_NAME));
  }

  const LONGEST_NAME = 200;

  function shortened(text, length) {
    return text.length <= length ? text : `${text.slice(0, length - 61)}…${text.slice(-60)}`;
  }

  // Characters of control, format, lines and paragraphs, halves of pairs, and fillers that look like nothing.
  const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u115f\u1160\u2800\u3164\uffa0]/gu;

  function plain(text) {
    return String(text).replace(UNSEEN, (character) => {
      const code = character.codePointAt(0).toString(16);
      return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
    });
  }

  const formats = [0, 1, 2, 3, 4].map((n) => new Intl.NumberFormat("en", { minimumFractionDigits: n, maximumFractionDigits: n }));
  const digits = (value, n) => formats[n].format(value);

  // Three significant digits in the unit that fits.
  function scaled(value, units, step) {
    if (value === null || value === undefined) return "–";
    let unit = 0;
    let size = Math.abs(value);
    while (unit + 1 < units.length && size >= 999.5) [unit, size, value] = [unit + 1, size / step, value / step];
    return `${digits(value, size === 0 || size >= 100 || (unit === 0 && step === 1024) ? 0 : size >= 10 ? 1 : 2)} ${units[unit]}`;
  }

  const time = (ns) => scaled(ns === null || ns === undefined ? ns : ns / 1000, ["µs", "ms", "s"], 1000);
  // The least and the most of the runs that a measured time is the median of; nothing of one run.
  const spread = ({ low_ns: low, high_ns: high }) => (low < high ? `${time(low)} to ${time(high)}` : "");
  const bytes = (n) => scaled(n, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
  const count = (n) => scaled(n, ["", "k", "M", "G", "T"], 1000).trimEnd();
  // A label of an axis: 2 MiB for 2.00 MiB.
  const tick = (text) => text.replace(/(\.\d*[1-9])0+(?=\D|$)|\.0+(?=\D|$)/, "$1");
  const percent = (share, n = 1) => (Number.isFinite(share) ? `${digits(100 * share, n)}%` : "–");
  const signed = (text) => (text === "–" ? text : text.startsWith("-") ? text.replace("-", "−") : `+${text}`);
  // A ratio of times as a change, such as +12%; 0% where that is less than half a percent.
  const changed = (ratio) => signed(percent(ratio - 1, 0)).replace(/^[−+]0%$/, "0%");

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

  // A name, and under it in small what else tells it from others.
  function entitled(title, ...more) {
    return h("div", { class: "entitled" }, name(title), h("div", { class: "quiet" }, more.filter((each) => each !== "").flatMap((each, index) => [index ? ", " : "", name(each)])));
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

  // A length as a bar in a table, from 0 to 1 of the longest; a mark on it where there is something to compare with.
  function bar(share, family = null, mark = null) {
    const at = (value) => `${(100 * Math.max(0, Math.min(1, value))).toFixed(2)}%`;
    return h("div", { class: "bar", "aria-hidden": "true" },
      h("div", { style: `width:${at(share)};background:${family === null ? "var(--quiet)" : colour(family)}` }),
      mark === null ? null : h("i", { style: `left:${at(mark)}` }));
  }

  // The end of a name, as much of it as a width in pixels has room for in small type; nothing where that is too little.
  function fitted(text, width) {
    const shown = plain(text);
    const room = Math.floor(width / 6.7);
    return shown.length <= room ? shown : room < 8 ? "" : `…${shown.slice(shown.length - room + 1)}`;
  }

  // What is made when it is first unfolded.
  function folded(title, make) {
    return h("details", { ontoggle: ({ target }) => target.childElementCount === 1 && target.append(make()) }, h("summary", {}, title));
  }

  // A picture under its title, drawn for the width that there is, and anew when that changes or the result is called.
  function figure(root, title, words, draw) {
    const box = h("div", { class: "picture" });
    root.append(h("figure", { class: "pictured" }, h("h2", {}, title), h("figcaption", { class: "quiet" }, words), box));
    let width = 0;
    const redraw = () => box.replaceChildren(draw(width = box.clientWidth || width || 720));
    redraw();
    new ResizeObserver(() => requestAnimationFrame(() => box.clientWidth && box.clientWidth !== width && redraw())).observe(box);
    return redraw;
  }

  // Makes the marks of a picture reachable: one stop of the Tab key, arrows go from one to the next, Enter and a click
  // choose, and the tip tells of the one under the pointer or with the focus. go(index, key) may say where a key leads.
  function walk(picture, marks, facts, choose, go = () => null) {
    const order = new Map(marks.map((mark, index) => [mark, index]));
    const along = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    marks.forEach((mark, index) => {
      mark.setAttribute("tabindex", index === 0 ? "0" : "-1");
      mark.setAttribute("role", "button");
      mark.setAttribute("aria-label", facts(index).map((each) => (each instanceof Node ? each.textContent : each)).join(", "));
    });
    const of = (event) => order.get(event.target);
    const tell = (event) => (of(event) === undefined ? showTip(event) : showTip(event, facts(of(event)).map((each) => h("div", {}, each))));
    picture.addEventListener("pointermove", tell);
    picture.addEventListener("pointerleave", (event) => showTip(event));
    picture.addEventListener("focusin", tell);
    picture.addEventListener("focusout", (event) => showTip(event));
    picture.addEventListener("click", (event) => of(event) !== undefined && choose(of(event)));
    picture.addEventListener("keydown", (event) => {
      const at = of(event);
      if (at === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Enter" || event.key === " ") choose(at);
      const to = go(at, event.key) ?? { Home: 0, End: marks.length - 1 }[event.key] ?? (along[event.key] ? at + along[event.key] : null);
      if (to !== null || event.key === " ") event.preventDefault();
      if (to === null || !(to in marks)) return;
      marks[at].setAttribute("tabindex", "-1");
      marks[to].setAttribute("tabindex", "0");
      marks[to].focus();
    });
  }

  function view(id, title, draw) {
    views.push({ id, title, draw, isDrawn: false });
  }

  let shown = null;

  function show(id) {
    shown = id;
    document.body.dataset.view = id;
    placePanel();
    for (const each of views) {
      const isShown = each.id === id;
      each.tab.setAttribute("aria-selected", String(isShown));
      each.tab.tabIndex = isShown ? 0 : -1;
      each.section.hidden = !isShown;
      if (!isShown) continue;
      drawOnce(each);
      each.onShown?.();
    }
  }

  function drawOnce(each) {
    if (each.isDrawn) return;
    each.isDrawn = true;
    each.onShown = each.draw(each.section);
  }

  // What is known of the chosen kernel, filled by node.js: beside the network, and beside each view once one is chosen.
  const panel = h("aside", { id: "node", "aria-label": "The chosen kernel" });

  // What stands beside the tabs, for all views.
  const tools = h("div", { class: "tools", role: "search" });

  let selected = null;
  let reorder = null;

  function placePanel() {
    panel.hidden = panel.childElementCount === 0 || (selected === null && shown !== "network");
    document.body.classList.toggle("chosen", selected !== null);
  }

  function choose(kernel, mark) {
    [selected, reorder] = [kernel, mark];
    placePanel();
    for (const listener of listeners) listener(kernel);
  }

  // Chooses a kernel, or null for none; with it maybe a reorder, by its id in the graph.
  function select(kernel, mark = null) {
    keep({ kernel, reorder: mark, at: null }, true);
    choose(kernel, mark);
  }

  // Wants a layout; null wants none any more.
  function pin(key, layout) {
    if (layout === null) pins.delete(key);
    else pins.set(key, layout);
    pinListeners.forEach((listener) => listener(pins));
  }

  // The pins of the plan itself, and no others.
  function resetPins() {
    pins.clear();
    for (const { key, wanted } of record.plan?.pins ?? []) pins.set(key, wanted);
    pinListeners.forEach((listener) => listener(pins));
  }

  resetPins();

  // The address has a view behind "#", then what is kept: "#time&kernel=3&find=conv".
  const parts = () => location.hash.slice(1).split("&");
  const values = () => new URLSearchParams(parts().slice(1).join("&"));
  const kept = (key) => values().get(key);

  // Keeps values in the address, null for none; as a step of the browser's history, or in place of the present one. To set
  // location.hash would take the focus from the tab.
  function keep(changes, isStep = false, id = shown) {
    const next = values();
    for (const [key, value] of Object.entries(changes)) {
      if (value === null) next.delete(key);
      else next.set(key, value);
    }
    const hash = `#${[id, String(next)].filter((each) => each !== "").join("&")}`;
    if (hash !== location.hash) history[isStep ? "pushState" : "replaceState"](null, "", location.href.split("#")[0] + hash);
  }

  // Goes to a view, where some values of the address may be others.
  function open(id, changes = {}) {
    keep(changes, true, id);
    follow();
  }

  // Shows what the address has.
  function follow() {
    show((views.find((each) => each.id === parts()[0]) || views[0]).id);
    const wanted = kept("kernel") === null ? null : Number(kept("kernel"));
    const kernel = record.plan?.kernels[wanted] === undefined ? null : wanted;
    if (kernel !== selected || kept("reorder") !== reorder) choose(kernel, kept("reorder"));
    addressListeners.forEach((listener) => listener());
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
    document.body.append(h("header", {}, h("div", { class: "row" }, first, theme), others),
      ...(views.length > 1 ? [h("div", { class: "bar-of-views" }, tabs, tools)] : []), h("div", { class: "body" }, main, panel), tip);
    addEventListener("hashchange", follow);
    addEventListener("beforeprint", () => views.forEach(drawOnce));
    addEventListener("keydown", (event) => event.key === "Escape" && showTip(event));
    follow();
  }

  return {
    record, h, s, name, plain, digits, time, bytes, count, tick, percent, signed, changed, colour, swatch, legend, table, showTip,
    bar, entitled, fitted, folded, figure, walk, spread,
    view, open, start, keep, kept, select, panel, tools, pins, pin, resetPins,
    get selected() { return selected; },
    get reorder() { return reorder; },
    onAddress: (listener) => addressListeners.push(listener),
    onSelect: (listener) => listeners.push(listener),
    onPins: (listener) => pinListeners.push(listener),
  };
})();
