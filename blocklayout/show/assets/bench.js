"use strict";
// A benchmark: how its times are spread, round by round, and beside a baseline; the same numbers in tables beneath.
page.view("results", "Results", (root) => {
  const { record, h, plain, name, table } = page;
  const ROW = 26;
  const MARGIN = 34;
  const AT_ONCE = 12;
  const MOST_LISTED = 24;
  const RATIO_OF_LOG = 4;
  const figures = [];

  const significant = (value, least) => value.toLocaleString("en", { minimumSignificantDigits: least, maximumSignificantDigits: 3 });

  // Three significant digits; whole numbers from 1000 on, powers of ten where there would be many zeros.
  function number(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size >= 999.5) return Math.round(value).toLocaleString("en");
    if (size > 0 && size < 0.001) return value.toExponential(1).replace("-", "−");
    return value === 0 ? "0" : significant(value, 3);
  }

  // In a chart of ratios all have three decimals.
  const format = (chart) => (value) => (chart.baseline !== "" && value >= 0.1 && value < 10 ? page.digits(value, 3) : number(value));
  const unit = (chart) => chart.unit.replace(/^us$/, "µs");
  const measured = (value, chart) => `${format(chart)(value)} ${unit(chart)}`.trimEnd();
  const isSingle = (chart) => chart.rows.every((row) => row.low === row.high && row.values.length < 2);

  function groups(rows) {
    return [...d3.group(rows, (row) => row.group)];
  }

  // From the least to the most of some rows, and 1 where there is a baseline; with room at both ends.
  function extent(chart, rows) {
    const fromZero = isSingle(chart) && !chart.baseline;
    const [low, high] = d3.extent([...rows.flatMap((row) => [row.low, row.high]), ...(chart.baseline ? [1] : []),
      ...(fromZero ? [0] : [])]);
    const isLog = low > 0 && high / low > RATIO_OF_LOG;
    const room = isLog ? (high / low) ** 0.04 : 0.04 * (high - low || Math.abs(high) || 1);
    return { isLog, domain: isLog ? [low / room, high * room] : [fromZero ? 0 : low - room, high + room] };
  }

  // Plain numbers, no more than fit.
  function ticks({ isLog, domain }, width) {
    const most = Math.max(2, Math.floor(width / 56));
    if (!isLog) return d3.ticks(...domain, Math.min(most, 8));
    const powers = d3.range(Math.floor(Math.log10(domain[0])), Math.ceil(Math.log10(domain[1])) + 1);
    const of = (steps) => powers.flatMap((power) => steps.map((step) => step * 10 ** power)).filter((each) => each >= domain[0] && each <= domain[1]);
    return [[1, 1.5, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]].map(of).find((found) => found.length <= most) || of([1]);
  }

  function described(chart, group, rows) {
    const told = rows.map((row) => `${plain(row.name)} ${measured(row.median, chart)}`).join(", ");
    return `${chart.title}${group === "" ? "" : `, ${plain(group)}`}, medians: ${told}`;
  }

  // Each row: a dot for each measurement, the first above; a box between the quartiles; a line from the least to the most.
  function strips(chart, group, rows, scale, width) {
    const y = new Map(rows.map((row, index) => [row, index]));
    const colour = (row) => page.colour(row.name === chart.baseline ? "plain" : "channels last");
    const longest = d3.max(rows, (row) => plain(row.name).length);
    const left = Math.min(7.6 * longest + 18, 0.44 * width);
    const points = rows.flatMap((row) => row.values.map((value, round) => ({
      row, value,
      y: y.get(row) + (row.values.length < 2 ? 0 : 0.5 * (round / (row.values.length - 1) - 0.5)),
      text: `${plain(row.name)}\n${row.values.length < 2 ? "" : `${round + 1} of ${row.values.length}: `}${measured(value, chart)}`,
    })));
    const boxed = rows.filter((row) => row.quartiles !== null);
    const many = d3.max(rows, (row) => row.values.length) > 60;
    const right = 62;
    const marked = ticks(scale, width - left - right);
    const plot = Plot.plot({
      width, height: ROW * rows.length + MARGIN, marginLeft: left, marginRight: right, marginTop: 6, marginBottom: 28,
      ariaLabel: described(chart, group, rows),
      style: { fontSize: "12.5px", fontFamily: "inherit", background: "none", overflow: "visible" },
      x: { type: scale.isLog ? "log" : "linear", domain: scale.domain, axis: null },
      y: { domain: [rows.length - 0.5, -0.5], axis: null },
      marks: [
        Plot.ruleX(marked, { stroke: "var(--line)" }),
        Plot.text(marked, { x: (value) => value, text: (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 }),
          frameAnchor: "bottom", lineAnchor: "top", dy: 7, fill: "var(--quiet)" }),
        chart.baseline ? Plot.ruleX([1], { stroke: "var(--text)", strokeWidth: 1.5 }) : null,
        Plot.ruleY(rows, { x1: "low", x2: "high", y: (row) => y.get(row), stroke: colour, strokeWidth: 1.2 }),
        Plot.rect(boxed, { x1: (row) => row.quartiles[0], x2: (row) => row.quartiles[1], y1: (row) => y.get(row) - 0.3,
          y2: (row) => y.get(row) + 0.3, fill: colour, fillOpacity: 0.22, stroke: colour, strokeWidth: 1 }),
        Plot.dot(points, { x: "value", y: "y", r: many ? 1.5 : isSingle(chart) ? 4.5 : 2.5, fill: (each) => colour(each.row), fillOpacity: many ? 0.5 : 0.9 }),
        isSingle(chart) ? null : Plot.ruleX(rows, { x: "median", y1: (row) => y.get(row) - 0.38, y2: (row) => y.get(row) + 0.38, stroke: "var(--text)", strokeWidth: 2.5 }),
        Plot.text(rows, { y: (row) => y.get(row), text: (row) => plain(row.name), frameAnchor: "left", textAnchor: "end", dx: -8, fill: "var(--text)", lineWidth: (left - 8) / 11, textOverflow: "ellipsis-middle" }),
        Plot.text(rows, { y: (row) => y.get(row), text: (row) => format(chart)(row.median), frameAnchor: "right", textAnchor: "end", dx: right - 4, fill: "var(--text)", fontVariant: "tabular-nums", fontWeight: 600 }),
        Plot.tip(points, Plot.pointer({ x: "value", y: "y", title: "text", fontSize: 12.5, maxRadius: 20 })),
      ],
    });
    plot.setAttribute("role", "img");
    return plot;
  }

  function drawn(chart) {
    const found = groups(chart.rows);
    const shared = chart.baseline ? extent(chart, chart.rows) : null;
    return h("div", { class: found.length > 1 ? "strips" : "strips one" }, found.map(([group, rows]) => {
      const figure = h("figure", { style: `min-height:${ROW * rows.length + MARGIN}px` }, found.length > 1 ? h("figcaption", {}, name(group)) : null);
      figures.push({ figure, draw: (width) => strips(chart, group, rows, shared || extent(chart, rows), width), plot: null, width: 0 });
      return figure;
    }));
  }

  // Draws what has no picture of its present width: some, and the others once these are on the screen.
  function fit(begin = 0) {
    for (const each of figures.slice(begin, begin + AT_ONCE)) {
      const width = Math.floor(each.figure.clientWidth);
      if (width === 0 || width === each.width) continue;
      const plot = each.draw(width);
      if (each.plot === null) each.figure.append(plot);
      else each.plot.replaceWith(plot);
      Object.assign(each, { plot, width });
    }
    if (begin + AT_ONCE < figures.length) setTimeout(fit, 0, begin + AT_ONCE);
  }

  const cell = (value, shown = number) => [value ?? -1, value === null || value === undefined ? "–" : shown(value)];

  function numbers(chart) {
    const isGrouped = groups(chart.rows).length > 1;
    const are = isSingle(chart);
    const shown = format(chart);
    const isFew = (row) => row.values.length > 1 && row.values.length <= MOST_LISTED;
    const isListed = chart.rows.some(isFew);
    const hasQuartiles = chart.rows.some((row) => row.quartiles !== null);
    const counted = chart.unit === "" ? "" : `, ${unit(chart)}`;
    const header = [...(isGrouped ? ["of"] : []), "name",
      ...(are ? [`value${counted}`] : [`median${counted}`, ...(hasQuartiles ? ["lower quartile", "upper quartile"] : []), "least", "most", "values"]),
      ...(isListed ? ["each, in order"] : [])];
    const rows = groups(chart.rows).flatMap(([, found]) => found).map((row) => [...(isGrouped ? [name(row.group)] : []), name(row.name),
      ...(are ? [cell(row.median, shown)] : [...[row.median, ...(hasQuartiles ? [row.quartiles?.[0], row.quartiles?.[1]] : []), row.low, row.high].map((value) => cell(value, shown)),
        row.values.length === 0 ? [0, "–"] : [row.values.length, String(row.values.length)]]),
      ...(isListed ? [isFew(row) ? row.values.map(shown).join("\u2002") : "–"] : [])]);
    return table(header, rows);
  }

  function tabled({ title, header, rows }) {
    return [h("h2", {}, title), table(header, rows.map((row) => row.map((each) =>
      (typeof each === "number" || each === null ? cell(each) : name(each)))))];
  }

  function key() {
    const mark = (...inside) => page.s("svg", { width: 34, height: 16, "aria-hidden": "true" }, inside);
    const blue = page.colour("channels last");
    const item = (svg, text) => h("span", {}, svg, " ", text);
    return h("div", { class: "legend" },
      item(mark(page.s("circle", { cx: 17, cy: 8, r: 2.5, fill: blue })), "one measurement, the first above"),
      item(mark(page.s("line", { x1: 17, x2: 17, y1: 1, y2: 15, stroke: "var(--text)", "stroke-width": 2.5 })), "median, in digits on the right"),
      item(mark(page.s("rect", { x: 6, y: 2, width: 22, height: 12, fill: blue, "fill-opacity": 0.22, stroke: blue })), "quartiles"),
      item(mark(page.s("line", { x1: 2, x2: 32, y1: 8, y2: 8, stroke: blue, "stroke-width": 1.2 })), "least to most"));
  }

  function about(chart) {
    const facts = [unit(chart), { less: "less is better", more: "more is better" }[chart.better],
      chart.baseline === "" ? null : `the line is ${chart.baseline}, 1 by definition`];
    return facts.filter(Boolean).join("; ");
  }

  root.append(record.charts.every(isSingle) ? "" : key());
  for (const chart of record.charts) {
    root.append(h("h2", {}, chart.title), h("div", { class: "quiet" }, about(chart)), drawn(chart),
      h("details", { class: "numbers", open: innerWidth > 640 }, h("summary", {}, "Numbers"), numbers(chart)));
  }
  root.append(...record.tables.flatMap(tabled));
  if (record.notes.length > 0) root.append(h("h2", {}, "Notes"), h("ul", {}, record.notes.map((note) => h("li", {}, name(note)))));
  new ResizeObserver(() => fit()).observe(root);
});

(() => {
  const { record, h, name } = page;
  const WORDS = { cpu: "CPU", isa: "instructions", n_threads: "threads", n_rounds: "rounds", n_runs: "runs", n_streams: "streams", date: "measured" };
  const facts = Object.entries(record.environment).filter(([, value]) => value !== null && typeof value !== "object")
    .map(([key, value]) => h("span", {}, h("span", { class: "quiet" }, `${WORDS[key] || key} `), name(value)));
  page.start(
    h("h1", {}, name(record.title)),
    h("div", { class: "facts" }, facts),
    record.command === "" ? null : h("div", {}, h("span", { class: "quiet" }, "by "), h("code", {}, name(record.command))),
  );
})();
