"use strict";
// A layout: the logical tensor, and memory from front to back, as linked pictures; a walk through memory; and, beside a
// second layout, the reorder between them. A place is an index within the padded extents: an element, or padding.
(() => {
  const { record, h, s, plain, digits, bytes } = page;
  const layouts = [record, record.to].filter((each) => each !== null && each !== undefined && each.map !== null);
  const walked = layouts[layouts.length - 1];
  const letters = [...record.letters];
  const whole = (n) => digits(n, 0);
  const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;

  const HUES = [250, 75, 155, 340, 40, 300, 200, 110];
  const TEXT_HEIGHT = 14;
  const CHARACTER = 6.1;
  const MAX_HEIGHT = 560;
  const MAX_LINE = 64;
  const BEHIND = 66;
  const TRAIL = 24;
  const MAX_OUTLINED = 512;

  // One layout with its places found by offset; cells are its places in memory's order, one for each address.
  function memoryOf(report) {
    const { offsets, padding, steps } = report.map;
    const byOffset = new Map();
    offsets.forEach((offset, place) => {
      if (offset === null) return;
      if (byOffset.has(offset)) byOffset.get(offset).push(place);
      else byOffset.set(offset, [place]);
    });
    const cells = [...byOffset.keys()].sort((one, other) => one - other);
    const volume = d3.reduce(report.inner_blocks, (product, [size]) => product * size, 1);
    return { report, offsets, padding: new Set(padding), steps, byOffset, cells, volume };
  }

  const indices = record.map === null ? [] : record.map.offsets.map((_, place) => {
    const index = [];
    for (const extent of [...record.map.extents].reverse()) {
      index.unshift(place % extent);
      place = Math.floor(place / extent);
    }
    return index;
  });
  const indexOf = (place) => indices[place];

  const indexText = (index) => `(${index.map((at, dim) => `${letters[dim]} ${at}`).join(", ")})`;
  const position = (loop, index) => Math.floor(index[loop.dim] / loop.below) % (loop.is_outer ? Infinity : loop.count);

  // The formula with the numbers put in, what its terms come to, and their sum.
  function formulaText({ report, steps }, index) {
    const shown = steps.map((loop, at) => ({ loop, text: report.terms[at] })).filter(({ loop }) => loop.step > 0).reverse();
    const start = report.offset0 > 0 ? [String(report.offset0)] : [];
    const put = shown.map(({ loop, text }) => text.replace(letters[loop.dim], index[loop.dim]));
    const values = shown.map(({ loop }) => position(loop, index) * loop.step);
    const total = report.offset0 + d3.sum(values);
    if (put.length + start.length === 0) return "0";
    return `${[...start, ...put].join(" + ")} = ${[...start, ...values].join(" + ")} = ${total}`;
  }

  // Which block holds an offset: its number in the order of memory, its first offset, and the position in it.
  function blockOf({ report, steps, volume }, index, offset) {
    let number = 0;
    let size = 1;
    let within = 0;
    for (const loop of steps) {
      if (loop.is_outer) {
        number += position(loop, index) * size;
        size *= loop.count;
      } else within += position(loop, index) * loop.step;
    }
    return { number, count: size, within, start: offset - within, volume, isPlain: report.inner_blocks.length === 0 };
  }

  // Colours: a hue for each block of a dimension, lighter to darker within it; a dimension without blocks runs through hues.
  const blockSize = (dim) => d3.reduce(walked.inner_blocks, (product, [size, letter]) => (letter === letters[dim] ? product * size : product), 1);

  function colourOf(dim, at) {
    const extent = record.map.extents[dim];
    const block = blockSize(dim);
    if (block > 1) return tone(HUES[Math.floor(at / block) % HUES.length], (at % block) / (block - 1));
    if (extent <= HUES.length) return tone(HUES[at], .5);
    return tone(250 - 170 * (at / (extent - 1)), at / (extent - 1));
  }

  function tone(hue, depth) {
    const light = `oklch(${(.94 - .2 * depth).toFixed(3)} ${(.05 + .06 * depth).toFixed(3)} ${hue.toFixed(0)})`;
    const dark = `oklch(${(.34 + .18 * depth).toFixed(3)} ${(.05 + .05 * depth).toFixed(3)} ${hue.toFixed(0)})`;
    return `light-dark(${light}, ${dark})`;
  }

  // Sizes of a cell to choose from, the first that fits being taken: wide enough for a number, then without numbers.
  function cellSizes(characters) {
    const width = Math.ceil(characters * CHARACTER + 7);
    return [[Math.max(width, 30), 22, true], [Math.max(width, 20), 18, true], ...[16, 13, 10, 8, 6].map((side) => [side, side, false])];
  }

  function fitting(sizes, arrange, height) {
    let arranged = null;
    for (const [width, tall, hasText] of sizes) {
      arranged = { ...arrange(width, tall), width, tall, hasText };
      if (arranged.height <= height && !arranged.overflows) break;
    }
    return arranged;
  }

  // The logical tensor: planes of two dimensions beside each other, in groups by all the others.
  function arrangeLogical(available, [row, column]) {
    const extents = record.map.extents;
    const others = d3.range(extents.length).filter((dim) => dim !== row && dim !== column);
    const wide = others.filter((dim) => extents[dim] > 1);
    const named = (some, index) => some.map((dim) => `${letters[dim]} ${index[dim]}`).join(" ");
    const number = (some, index) => d3.reduce(some, (found, dim) => found * extents[dim] + index[dim], 0);
    const count = (some) => d3.reduce(some, (product, dim) => product * extents[dim], 1);
    const last = indices[indices.length - 1];
    return (width, tall) => {
      const isWrapped = row === null;
      const perRow = isWrapped ? Math.max(1, Math.min(extents[column], Math.floor((available - 16) / width))) : extents[column];
      const rows = isWrapped ? Math.ceil(extents[column] / perRow) : extents[row];
      const gap = Math.max(6, Math.min(12, width));
      const planeWidth = perRow * width + gap;
      const planeHeight = rows * tall + TEXT_HEIGHT + 6;
      const ways = d3.range(Math.max(0, wide.length - 1), -1, -1).map((nGrouping) => {
        const [grouping, across] = [wide.slice(0, nGrouping), wide.slice(nGrouping)];
        const margin = grouping.length > 0 ? named(grouping, last).length * CHARACTER + 12 : 16;
        const perLine = Math.max(1, Math.floor((available - margin + gap) / planeWidth));
        return { grouping, across, margin, perLine, nLines: count(grouping) * Math.ceil(count(across) / perLine) };
      });
      const { grouping, across, margin, perLine } = d3.least(ways, ({ nLines, grouping: { length } }) => nLines * (1 - length / 4));
      const nAcross = count(across);
      const groupHeight = Math.ceil(nAcross / perLine) * planeHeight + (grouping.length > 0 ? 4 : 0);
      const corner = (index) => {
        const plane = number(across, index);
        return [margin + (plane % perLine) * planeWidth, number(grouping, index) * groupHeight + Math.floor(plane / perLine) * planeHeight + TEXT_HEIGHT + 2];
      };
      const at = (index) => {
        const [x, y] = corner(index);
        const along = index[column];
        return isWrapped ? [x + (along % perRow) * width, y + Math.floor(along / perRow) * tall] : [x + along * width, y + index[row] * tall];
      };
      const isFirstOfPlane = (index) => index.every((position, dim) => wide.includes(dim) || position === 0);
      const titles = () => indices.filter(isFirstOfPlane).flatMap((index) => {
        const [x, y] = corner(index);
        const plane = number(across, index);
        const title = named(across, index);
        const isShown = title !== "" && (plane % perLine === 0 || title.length * CHARACTER <= planeWidth - 2);
        const isGroup = grouping.length > 0 && plane === 0;
        return [...(isShown ? [{ x, y: y - 4, text: title }] : []), ...(isGroup ? [{ x: 0, y: y + 10, text: named(grouping, index) }] : [])];
      });
      const overflows = margin + planeWidth - gap > available;
      return { at, titles, overflows, margin, fullWidth: margin + Math.min(perLine, nAcross) * planeWidth, height: count(grouping) * groupHeight };
    };
  }

  // The loops of a walk as a picture has them: over addresses, or, where most of these have no place to be drawn, over
  // the places alone.
  function drawnLoops(steps, isCompact) {
    const loops = steps.filter((loop) => loop.step > 0 && loop.count > 1);
    if (!isCompact) return loops;
    let step = 1;
    return loops.map((loop) => {
      const count = Math.min(loop.count, Math.ceil(record.map.extents[loop.dim] / loop.below));
      const drawn = { count, step };
      step *= count;
      return drawn;
    }).filter((loop) => loop.count > 1);
  }

  // Memory from front to back: lines as long as some loop of the walk, set apart where outer loops go on.
  function arrangeMemory(memory, available) {
    const { report, steps, cells } = memory;
    const span = cells[cells.length - 1] - report.offset0 + 1;
    const isCompact = report.map.n_left_out > 0 || span > 4 * cells.length;
    const ranks = new Map(cells.map((offset, rank) => [offset, rank]));
    const position = (offset) => (isCompact ? ranks.get(offset) : offset - report.offset0);
    const loops = drawnLoops(steps, isCompact);
    const borders = [...new Set(loops.map((loop) => loop.step).filter((step) => step > 1))];
    const n = isCompact ? cells.length : span;
    const lengths = new Set([1]);
    loops.forEach((loop, at) => {
      const outer = at + 1 < loops.length ? loops[at + 1].step : 0;
      for (let times = 1; times <= Math.min(loop.count, MAX_LINE); times += 1) {
        if (times === 1 || (loop.count % times === 0 && outer % (loop.step * times) === 0)) lengths.add(loop.step * times);
      }
    });
    const sorted = [...lengths].filter((length) => length <= MAX_LINE).sort((one, other) => other - one);
    const isNarrow = available < 520;
    const numbers = String(cells[cells.length - 1]).length * CHARACTER + 8;
    const extents = record.map.extents;
    const longest = d3.sum(extents, (extent, dim) => (extent > 1 ? 2 + String(extent - 1).length * (blockSize(dim) > 1 ? 2 : 1) : 0)) + 4;
    const texts = isNarrow ? 0 : longest * CHARACTER + 8;
    const margin = numbers + texts;
    return (width, tall) => {
      const inset = (column, length) => d3.sum(borders.filter((step) => step < length), (step, number) => Math.floor(column / step) * Math.min((isCompact ? 5 : 2) + 3 * number, 8));
      const room = available - margin - BEHIND;
      const widthOf = (length) => length * width + inset(length - 1, length);
      let length = sorted.find((each) => widthOf(each) <= room) || 1;
      const most = Math.min(MAX_LINE, Math.floor(room / width) || 1);
      if (length < 8 && most >= 2 * length && n > most) length = most;
      const outer = loops.filter((loop) => loop.step > length).sort((one, other) => other.step - one.step);
      const lineOf = (offset) => {
        const at = position(offset);
        const start = outer.reduce((from, loop) => from + Math.min(Math.floor((at - from) / loop.step), loop.count - 1) * loop.step, 0);
        return start + Math.floor((at - start) / length) * length;
      };
      const lines = new Map();
      for (const offset of cells) {
        const line = lineOf(offset);
        if (!lines.has(line)) lines.set(line, { line, offsets: [] });
        lines.get(line).offsets.push(offset);
      }
      const moved = { by: 0 };
      let y = 2;
      let before = null;
      for (const each of lines.values()) {
        if (before !== null) {
          const crossed = borders.filter((step) => step >= length && Math.floor(each.line / step) !== Math.floor(before / step));
          y += tall + Math.min(9, 3 * crossed.length);
        }
        each.y = y;
        before = each.line;
      }
      const at = (offset) => {
        const line = lineOf(offset);
        const column = position(offset) - line;
        return [margin - moved.by + column * width + inset(column, length), lines.get(line).y];
      };
      return { at, lines, moved, texts, length, lineOf, isCompact, margin, numbers, isNarrow, overflows: widthOf(length) > room, fullWidth: margin + widthOf(length) + BEHIND, height: y + tall + 4 };
    };
  }

  // Which indices a line of memory runs over, where these are not all.
  function lineText(memory, offsets) {
    const indices = offsets.map((offset) => indexOf(memory.byOffset.get(offset)[0]));
    const ranges = letters.map((letter, dim) => {
      const [least, most] = d3.extent(indices, (index) => index[dim]);
      const isAll = least === 0 && most === record.map.extents[dim] - 1;
      return isAll ? "" : `${letter}${least}${most > least ? `–${most}` : ""}`;
    });
    return ranges.filter((each) => each !== "").join(" ");
  }

  function draw(root) {
    if (record.map === null) {
      root.append(h("p", {}, "There is nothing to draw: the tensor has no elements."), facts());
      return;
    }
    const memories = layouts.map(memoryOf);
    const followed = memories[memories.length - 1];
    const extents = record.map.extents;
    const dims = record.dims;
    const isPadding = (index) => index.some((at, dim) => at >= dims[dim]);
    const state = { dim: firstColour(), planes: firstPlanes(), marked: null, walk: -1, timer: null, seen: new Set() };
    let pictures = [];

    function firstColour() {
      const [, letter] = walked.inner_blocks[walked.inner_blocks.length - 1] || [0, ""];
      const wide = d3.range(dims.length).filter((dim) => extents[dim] > 1);
      if (letter !== "") return letters.indexOf(letter);
      return wide.includes(1) ? 1 : wide[0] || 0;
    }

    // Rows and columns: two dimensions that both have blocks, else the last two that have more than one index.
    function firstPlanes() {
      const blocked = [...new Set(walked.inner_blocks.map(([, letter]) => letters.indexOf(letter)))].sort((one, other) => one - other);
      return blocked.length === 2 ? blocked : (planePairs()[0] || [null, d3.maxIndex(extents)]);
    }

    function planePairs() {
      const wide = d3.range(dims.length).filter((dim) => extents[dim] > 1).reverse();
      return wide.flatMap((column, at) => wide.slice(at + 1).map((row) => [row, column]));
    }

    // A picture is an <svg> that has the focus and arrow keys; cells are its places.
    function picture(arranged, label, cells, more) {
      const hatch = `hatch${pictures.length}`;
      const cellLayer = s("g", { class: "cells" });
      const outlines = s("path", { class: "outline" });
      const trail = s("path", { class: "trail" });
      const marks = s("g", { class: "marks" });
      const svg = s("svg", { class: "layout-map", viewBox: `0 0 ${Math.ceil(arranged.fullWidth)} ${Math.ceil(arranged.height)}`, width: Math.ceil(arranged.fullWidth),
        height: Math.ceil(arranged.height), tabindex: "0", role: "application", "aria-roledescription": "map", "aria-label": label },
        s("defs", {}, s("pattern", { id: hatch, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
          s("rect", { width: 5, height: 5, class: "hatch-ground" }), s("rect", { width: 1.5, height: 5, class: "hatch-line" }))),
        more, cellLayer, outlines, trail, marks);
      const size = { width: arranged.width - 1, height: arranged.tall - 1 };
      d3.select(cellLayer).selectAll("rect").data(cells).join("rect").attr("class", (cell) => (cell.isPadding ? "cell padding" : "cell"))
        .attr("x", (cell) => cell.x).attr("y", (cell) => cell.y).attr("width", size.width).attr("height", size.height).attr("rx", arranged.tall > 12 ? 2 : 0)
        .style("fill", (cell) => (cell.isPadding ? `url(#${hatch})` : null));
      if (arranged.hasText) {
        d3.select(cellLayer).selectAll("text").data(cells.filter((cell) => !cell.isPadding)).join("text")
          .attr("x", (cell) => cell.x + size.width / 2).attr("y", (cell) => cell.y + size.height / 2 + 3.6).text((cell) => cell.text(state.dim));
      }
      const byPlace = new Map(cells.flatMap((cell) => cell.places.map((place) => [place, cell])));
      const made = { svg, cells, byPlace, size, outlines, trail, marks, arranged };
      const rects = d3.select(cellLayer).selectAll("rect");
      made.colour = () => {
        const colours = d3.range(extents[state.dim]).map((at) => colourOf(state.dim, at));
        rects.filter((cell) => !cell.isPadding).style("fill", (cell) => colours[cell.index[state.dim]]);
        d3.select(cellLayer).selectAll("text").text((cell) => cell.text(state.dim));
      };
      made.see = () => {
        svg.classList.toggle("walking", state.walk >= 0);
        rects.classed("seen", (cell) => cell.places.some((place) => state.seen.has(place)));
      };
      const node = new Map();
      rects.each(function remember(cell) { node.set(cell, this); });
      made.seeOne = (place) => byPlace.has(place) && node.get(byPlace.get(place)).classList.add("seen");
      const pointed = (event) => {
        const cell = event.target.__data__;
        if (cell && cell.places) mark(cell.places[0]);
        else if (cell && cell.gap) markGap(cell);
      };
      svg.addEventListener("pointermove", pointed);
      svg.addEventListener("pointerdown", pointed);
      pictures.push(made);
      return made;
    }

    function logicalPicture(available) {
      const arranged = fitting(cellSizes(String(d3.max(record.map.offsets, Number)).length), arrangeLogical(available, state.planes), MAX_HEIGHT);
      const cells = record.map.offsets.map((offset, place) => {
        const index = indexOf(place);
        const [x, y] = arranged.at(index);
        return { places: [place], index, x, y, isPadding: isPadding(index), text: () => String(offset) };
      });
      const titles = arranged.titles().map(({ x, y, text }) => s("text", { class: "title", x, y }, text));
      const made = picture(arranged, `The logical tensor: ${planesText()}. Arrow keys move in a plane, Page Up and Page Down between planes.`, cells, titles);
      made.svg.addEventListener("keydown", (event) => moveLogically(event));
      return made;
    }

    function planesText() {
      const [row, column] = state.planes;
      const others = d3.range(dims.length).filter((dim) => dim !== row && dim !== column && extents[dim] > 1).map((dim) => letters[dim]);
      const planes = others.length > 0 ? `; a plane for each ${others.join(" and ")}` : "";
      return `${row === null ? "" : `rows are ${letters[row]}, `}columns ${letters[column]}${planes}`;
    }

    function memoryPicture(memory, available) {
      const { report, byOffset } = memory;
      const sizes = cellSizes(d3.max(extents, (extent) => String(extent - 1).length) + 1);
      const arranged = fitting(sizes, arrangeMemory(memory, available), MAX_HEIGHT);
      const texts = new Map([...arranged.lines.values()].map((line) => [line, arranged.isNarrow ? "" : lineText(memory, line.offsets)]));
      arranged.moved.by = Math.max(0, arranged.texts - d3.max(texts.values(), (text) => text.length) * CHARACTER - 10);
      arranged.fullWidth -= arranged.moved.by;
      const cells = memory.cells.map((offset) => {
        const places = byOffset.get(offset);
        const index = indexOf(places[0]);
        const [x, y] = arranged.at(offset);
        return { places, offset, index, x, y, isPadding: memory.padding.has(places[0]), text: (dim) => `${letters[dim]}${index[dim]}` };
      });
      let labelled = -Infinity;
      const labels = [...arranged.lines.values()].flatMap((line) => {
        const { offsets, y } = line;
        if (y - labelled < 11) return [];
        labelled = y;
        const middle = y + arranged.tall / 2 + 3;
        return [s("text", { class: "offset", x: arranged.numbers - 6, y: middle }, String(offsets[0])),
          s("text", { class: "title", x: arranged.numbers + 2, y: middle }, texts.get(line))];
      });
      const name = `Memory of ${report.tag} from front to back. Arrow keys move by an element and by a line.`;
      const made = picture(arranged, name, cells, [labels, gapMarks(memory, arranged)]);
      made.svg.addEventListener("keydown", (event) => moveInMemory(event, memory, made));
      made.memory = memory;
      return made;
    }

    // Stretches without places: frames within lines, dots behind a line where others are skipped.
    function gapMarks(memory, arranged) {
      const { report } = memory;
      let told = -Infinity;
      return report.map.gaps.filter(([start]) => start >= report.offset0).map(([start, n, kind]) => {
        const parts = arranged.isCompact ? [] : gapFrames(report, arranged, start, start + n - 1);
        const [before, after] = [start - 1, start + n].map((offset) => (memory.byOffset.has(offset) ? arranged.lineOf(offset) : null));
        if (before !== null && after !== before && (arranged.isCompact || after === null || after - before > arranged.length)) {
          const { y } = arranged.lines.get(before);
          if (y - told >= 11) parts.push(s("text", { class: "title", x: arranged.fullWidth - BEHIND + 6, y: y + arranged.tall / 2 + 3 }, `⋯ ${n < 1e5 ? whole(n) : page.count(n)}`));
          if (y - told >= 11) told = y;
        }
        for (const part of parts) part.__data__ = { gap: kind, start, n, memory };
        return parts;
      });
    }

    function gapFrames(report, arranged, start, end) {
      return [...new Set([arranged.lineOf(start), arranged.lineOf(end)])].filter((line) => arranged.lines.has(line)).map((line) => {
        const from = Math.max(start, report.offset0 + line);
        const to = Math.min(end, report.offset0 + line + arranged.length - 1);
        const [[x, y], [last]] = [arranged.at(from), arranged.at(to)];
        return s("rect", { class: "gap", x, y, width: last + arranged.width - 1 - x, height: arranged.tall - 1 });
      });
    }

    const readout = h("div", { class: memories.length > 1 ? "readout tall" : "readout", "aria-live": "polite" });
    const hint = "Point at an element, or choose a picture and use the arrow keys.";
    readout.append(h("p", { class: "quiet" }, hint));

    // Marks a place in all pictures and says where it lies.
    function mark(place, isWalk = false) {
      state.marked = place;
      const index = indexOf(place);
      for (const each of pictures) {
        const cell = each.byPlace.get(place);
        each.marks.replaceChildren(...(cell === undefined ? [] : [markRect(cell, each)]));
        each.outlines.setAttribute("d", outline(each, index, place));
        if (cell !== undefined) reveal(each, cell);
      }
      if (!isWalk) for (const each of pictures) each.trail.setAttribute("d", "");
      readout.setAttribute("aria-live", state.timer === null ? "polite" : "off");
      readout.replaceChildren(h("p", {}, h("strong", {}, indexText(index)), isPadding(index) ? paddingText(index) : ""),
        ...memories.map((memory) => placeText(memory, index, place)));
    }

    function markRect(cell, { size }) {
      return s("rect", { class: "mark", x: cell.x - 1.5, y: cell.y - 1.5, width: size.width + 3, height: size.height + 3, rx: 2 });
    }

    // A frame around each place of the block, in memory and in the logical tensor.
    function outline(picture, index, place) {
      const memory = picture.memory || followed;
      const offset = memory.offsets[place];
      if (offset === null || memory.volume === 1 || memory.volume > MAX_OUTLINED) return "";
      const { start, volume } = blockOf(memory, index, offset);
      const cells = d3.range(start, start + volume).flatMap((each) => memory.byOffset.get(each) || []).map((each) => picture.byPlace.get(each));
      return framesOf(cells.filter((cell) => cell !== undefined), picture)
        .map(({ x, y, right, bottom }) => `M${x - 1},${y - 1}H${right + 1}V${bottom + 1}H${x - 1}z`).join("");
    }

    // Rectangles around neighbouring cells: along each row, then rows of one width.
    function framesOf(cells, { size }) {
      const frames = [];
      for (const { x, y } of d3.sort(cells, (cell) => cell.y, (cell) => cell.x)) {
        const last = frames[frames.length - 1];
        if (last !== undefined && last.y === y && x - last.right < 10) last.right = x + size.width;
        else frames.push({ x, y, right: x + size.width, bottom: y + size.height });
      }
      return frames.reduce((merged, frame) => {
        const above = merged.find((each) => each.x === frame.x && each.right === frame.right && frame.y > each.y && frame.y - each.bottom < 3);
        if (above === undefined) merged.push(frame);
        else above.bottom = frame.bottom;
        return merged;
      }, []);
    }

    function reveal({ svg }, cell) {
      const box = svg.parentElement;
      if (box === null) return;
      if (cell.y < box.scrollTop || cell.y + 30 > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, cell.y - box.clientHeight / 2);
      if (cell.x < box.scrollLeft || cell.x + 30 > box.scrollLeft + box.clientWidth) box.scrollLeft = Math.max(0, cell.x - box.clientWidth / 2);
    }

    function paddingText(index) {
      const past = index.flatMap((at, dim) => (at >= dims[dim] ? [`${letters[dim]} has ${plural(dims[dim], "index").replace("indexs", "indices")}`] : []));
      return `: padding; ${past.join(", ")}`;
    }

    function placeText(memory, index, place) {
      const { report, offsets } = memory;
      const offset = offsets[place];
      const heading = memories.length > 1 ? h("strong", {}, `${plain(report.tag)}: `) : "";
      if (offset === null) return h("p", {}, heading, "has no such place");
      const block = blockOf(memory, index, offset);
      const where = block.isPlain ? "" : `; block ${whole(block.number)} of ${whole(block.count)}, position ${block.within} of ${block.volume} in it`;
      const sharing = memory.byOffset.get(offset).length;
      return h("div", {},
        h("p", {}, heading, `element ${whole(offset)}, byte ${whole(offset * report.itemsize)}${where}`,
          sharing > 1 ? `; ${sharing} elements share it` : ""),
        h("p", { class: "code" }, formulaText(memory, index)));
    }

    function markGap({ gap, start, n, memory }) {
      state.marked = null;
      for (const each of pictures) {
        each.marks.replaceChildren();
        each.outlines.setAttribute("d", "");
      }
      const words = gap === "hole" ? "nothing of this tensor" : "not drawn";
      readout.replaceChildren(h("p", {}, h("strong", {}, n > 1 ? `elements ${whole(start)} to ${whole(start + n - 1)}` : `element ${whole(start)}`),
        `${memories.length > 1 ? ` of ${plain(memory.report.tag)}` : ""}: ${words}, ${bytes(n * memory.report.itemsize)}`));
    }

    function moveLogically(event) {
      const [row, column] = state.planes;
      const others = d3.range(dims.length).filter((dim) => dim !== row && dim !== column).reverse();
      const index = indexOf(state.marked ?? 0);
      const moved = {
        ArrowRight: () => stepped(index, [column], 1), ArrowLeft: () => stepped(index, [column], -1),
        ArrowDown: () => (row === null ? index : stepped(index, [row], 1)), ArrowUp: () => (row === null ? index : stepped(index, [row], -1)),
        PageDown: () => stepped(index, others, 1), PageUp: () => stepped(index, others, -1),
        Home: () => index.map(() => 0), End: () => extents.map((extent) => extent - 1),
      }[event.key];
      if (moved === undefined) return;
      event.preventDefault();
      mark(state.marked === null ? 0 : d3.reduce(moved(), (place, at, dim) => place * extents[dim] + at, 0));
    }

    // The next index along some dimensions, the first of them fastest; it stays at the ends.
    function stepped(index, along, by) {
      const next = [...index];
      for (const dim of along) {
        next[dim] += by;
        if (next[dim] >= 0 && next[dim] < extents[dim]) return next;
        next[dim] = by > 0 ? 0 : extents[dim] - 1;
      }
      return index;
    }

    function moveInMemory(event, memory, made) {
      const { cells, offsets, byOffset } = memory;
      const at = state.marked === null ? -1 : d3.bisectLeft(cells, offsets[state.marked] ?? 0);
      const last = cells.length - 1;
      const line = (by) => {
        const from = made.byPlace.get(byOffset.get(cells[Math.max(at, 0)])[0]);
        const [reached] = d3.groupSort(made.cells.filter((cell) => (cell.y - from.y) * by > 0), ([cell]) => Math.abs(cell.y - from.y), (cell) => cell.y);
        const cell = d3.least(made.cells.filter((each) => each.y === reached), (each) => Math.abs(each.x - from.x));
        return cell === undefined ? at : d3.bisectLeft(cells, cell.offset);
      };
      const next = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: line(1), ArrowUp: line(-1), Home: 0, End: last }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      mark(byOffset.get(cells[Math.max(0, Math.min(last, next))])[0]);
    }

    // The walk: through the places of one layout as they lie in memory.
    const order = followed.cells.map((offset) => followed.byOffset.get(offset)[0]);
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    const progress = h("output", { class: "quiet" });
    const play = h("button", { type: "button", onclick: () => (state.timer === null ? start() : pause()) }, "Play");
    const speed = h("input", { type: "range", min: 0, max: 8, value: 3, "aria-label": "Speed" });
    const pace = h("output", { class: "quiet" });
    const perSecond = () => 2 ** Number(speed.value);
    speed.addEventListener("input", tellPace);

    function tellPace() {
      pace.textContent = `${perSecond()} a second`;
      speed.setAttribute("aria-valuetext", pace.textContent);
    }

    function walkTo(at) {
      const next = Math.max(-1, Math.min(order.length - 1, at));
      if (next >= state.walk && state.walk >= 0) {
        for (const place of order.slice(state.walk + 1, next + 1)) {
          state.seen.add(place);
          for (const each of pictures) each.seeOne(place);
        }
        state.walk = next;
      } else {
        state.walk = next;
        state.seen = new Set(order.slice(0, next + 1));
        for (const each of pictures) each.see();
      }
      progress.textContent = next < 0 ? "" : `${whole(next + 1)} of ${whole(order.length)}`;
      if (next >= 0) {
        mark(order[next], true);
        drawTrail(next);
      }
    }

    function drawTrail(at) {
      const recent = order.slice(Math.max(0, at - TRAIL + 1), at + 1);
      for (const each of pictures) {
        const cells = recent.map((place) => each.byPlace.get(place)).filter((cell) => cell !== undefined);
        each.trail.setAttribute("d", cells.length < 2 ? "" : d3.line()(cells.map(({ x, y }) => [x + each.size.width / 2, y + each.size.height / 2])));
      }
    }

    function start() {
      if (state.walk >= order.length - 1) walkTo(-1);
      play.textContent = "Pause";
      let owed = 1;
      let before = 0;
      state.timer = d3.timer((elapsed) => {
        owed += (elapsed - before) / 1000 * perSecond();
        before = elapsed;
        const due = Math.floor(owed);
        owed -= due;
        if (due > 0) walkTo(state.walk + due);
        if (state.walk >= order.length - 1) pause();
      });
    }

    function pause() {
      if (state.timer !== null) state.timer.stop();
      state.timer = null;
      play.textContent = "Play";
    }

    const stepping = (by) => () => {
      pause();
      walkTo(state.walk + by);
    };
    const playing = h("span", { class: "controls" }, play, h("label", {}, "Speed ", speed, " ", pace));
    const stillness = h("span", { class: "quiet" }, "Your system asks for reduced motion: the walk goes step by step.");

    function honourMotion() {
      if (still.matches) pause();
      playing.hidden = still.matches;
      stillness.hidden = !still.matches;
    }

    still.addEventListener("change", honourMotion);
    honourMotion();
    tellPace();
    const walkControls = h("div", { class: "controls", role: "group", "aria-label": "Walk through memory" },
      h("span", {}, `Walk through ${memories.length > 1 ? plain(walked.tag) : "memory"}`),
      h("button", { type: "button", onclick: () => { pause(); walkTo(-1); } }, "Reset"),
      h("button", { type: "button", onclick: stepping(-1) }, "Back"),
      h("button", { type: "button", onclick: stepping(1) }, "Step"), playing, progress, stillness);

    const chosen = h("select", { onchange: () => { state.dim = Number(chosen.value); for (const each of pictures) each.colour(); tellColours(); } },
      letters.map((letter, dim) => (extents[dim] > 1 || dim === state.dim ? h("option", { value: dim, selected: dim === state.dim }, letter) : null)));
    const pairs = planePairs();
    const planes = h("select", { onchange: () => { state.planes = planes.value.split(" ").map(Number); redraw(); } },
      pairs.map(([row, column]) => h("option", { value: `${row} ${column}`, selected: row === state.planes[0] && column === state.planes[1] },
        `${letters[row]} by ${letters[column]}`)));
    const colours = h("div", { class: "legend" });

    function tellColours() {
      const extent = extents[state.dim];
      const letter = letters[state.dim];
      const block = blockSize(state.dim);
      const ends = block > 1 ? d3.range(0, extent, block).slice(0, HUES.length).map((from) => [from, Math.min(from + block, extent) - 1])
        : extent <= HUES.length ? d3.range(extent).map((at) => [at, at]) : [[0, extent - 1]];
      const gradient = ([from, to]) => `background:linear-gradient(90deg, ${d3.range(5).map((at) => colourOf(state.dim, Math.round(from + (to - from) * at / 4))).join(", ")})`;
      const isMore = block > 1 && extent > block * HUES.length;
      const hasHoles = layouts.some((each) => each.map.gaps.some(([first, , kind]) => kind === "hole" && first >= each.offset0));
      colours.replaceChildren(
        ...ends.map((each) => h("span", {}, h("span", { class: each[0] === each[1] ? "swatch" : "swatch long", style: gradient(each), "aria-hidden": "true" }),
          each[0] === each[1] ? `${letter} ${each[0]}` : `${letter} ${each[0]}–${each[1]}`)),
        ...(isMore ? [h("span", {}, "and again")] : []),
        ...(layouts.some((each) => each.map.padding.length > 0) ? [h("span", {}, h("span", { class: "swatch hatched", "aria-hidden": "true" }), "padding")] : []),
        ...(hasHoles ? [h("span", {}, h("span", { class: "swatch framed", "aria-hidden": "true" }), "nothing of this tensor")] : []));
    }

    const logical = h("div", { class: "map-box" });
    const boxes = memories.map(() => h("div", { class: "map-box" }));
    const caption = h("p", { class: "quiet" });

    function redraw() {
      pictures = [];
      const width = (box) => Math.max(280, box.clientWidth - 4);
      const logicalMap = logicalPicture(width(logical));
      logical.replaceChildren(logicalMap.svg);
      boxes.forEach((box, at) => box.replaceChildren(memoryPicture(memories[at], width(box)).svg));
      for (const each of pictures) {
        each.colour();
        each.see();
      }
      caption.textContent = `${planesText()[0].toUpperCase()}${planesText().slice(1)}${logicalMap.arranged.hasText ? `; numbers are offsets in ${plain(record.tag)}` : ""}.`;
      if (state.marked !== null) mark(state.marked);
    }

    const figure = (title, note, box) => h("figure", {}, h("figcaption", {}, h("h2", {}, title), note), box);
    const memoryNote = (report) => h("p", { class: "quiet" }, `${bytes(report.nbytes)}; each line begins with its first offset and the indices it runs over`);
    const shown = h("div", { class: memories.length > 1 ? "maps three" : "maps" }, figure("The logical tensor", caption, logical),
      ...memories.map((memory, at) => figure(memories.length > 1 ? `Memory of ${plain(memory.report.tag)}` : "Memory, from front to back", memoryNote(memory.report), boxes[at])));
    root.append(...leftOut(),
      h("div", { class: "controls" }, h("label", {}, "Colour by ", chosen), pairs.length > 1 ? h("label", {}, "Planes of ", planes) : "", colours),
      walkControls, readout, shown, reorderWords(), facts());
    tellColours();
    redraw();
    root.addEventListener("keydown", (event) => event.key === "Escape" && pause());
    let drawnAt = root.clientWidth;
    new ResizeObserver(() => {
      if (Math.abs(root.clientWidth - drawnAt) < 8 || root.clientWidth === 0) return;
      drawnAt = root.clientWidth;
      redraw();
    }).observe(root);
  }

  function leftOut() {
    if (layouts.every((each) => each.map.n_left_out === 0)) return [];
    const isCut = (dim) => layouts.some((each) => record.map.extents[dim] < each.padded_dims[dim]);
    const ranges = letters.flatMap((letter, dim) => (isCut(dim) ? [`the first ${record.map.extents[dim]} of ${whole(record.dims[dim])} ${letter}`] : []));
    return [h("p", {}, `The tensor is too large to be drawn whole. Drawn are ${ranges.join(", ")}; `,
      `${plural(record.map.n_left_out, "more place")} of ${plain(record.tag)} are laid out alike.`)];
  }

  function reorderWords() {
    if (!record.reorder_words || record.reorder_words.length === 0) return "";
    return h("div", {}, h("h2", {}, `The reorder to ${plain(record.to.tag)}`), h("ul", {}, record.reorder_words.map((line) => h("li", {}, plain(line)))));
  }

  function facts() {
    const reports = [record, record.to].filter((each) => each !== null && each !== undefined);
    const byLetter = (values) => letters.map((letter, dim) => `${letter} ${values[dim]}`).join(", ");
    const row = (title, tell) => [title, ...reports.map((report) => plain(tell(report)))];
    const library = record.library === null ? [] : [["the library", plain(record.library), ...(record.to ? [""] : [])]];
    return h("div", {}, h("h2", {}, "In numbers"), page.table(["", ...reports.map((report) => plain(report.desc))], [
      row("offset", (report) => report.formula),
      row("memory walks", (report) => report.walk.join(", ") || "nowhere"),
      row("dims", (report) => byLetter(report.dims)),
      row("padded dims", (report) => byLetter(report.padded_dims)),
      row("strides, in elements", (report) => byLetter(report.strides)),
      row("inner blocks", (report) => report.inner_blocks.map(([size, letter]) => `${size}${letter}`).join(" ") || "none"),
      row("in letters", (report) => report.canonical_tag || "no tag: there are gaps, or it is a part of something"),
      row("bytes", (report) => `${whole(report.nbytes)}, ${whole(report.padding_nbytes)} of them padding${report.hole_nbytes > 0 ? `, ${whole(report.hole_nbytes)} not part of it` : ""}`),
      ...(reports.some((report) => report.extra !== null) ? [row("behind the elements", (report) => report.extra || "nothing")] : []),
      ...library,
    ]));
  }

  page.view("map", "Map", draw);
  page.start(
    h("h1", {}, plain(record.desc), record.to ? ` → ${plain(record.to.tag)}` : ""),
    h("div", { class: "code" }, `offset = ${plain(record.formula)}`),
    record.to ? h("div", { class: "code" }, `then ${plain(record.to.formula)}`) : "",
  );
})();
