"use strict";
// The graph of a plan as it can be drawn: kernels, reorders and the caller's values, blocks, and where each lies.
// Nothing here touches the document.
const planGraph = (() => {
  const { plan, profile } = page.record;
  const totalNs = profile === null ? plan.cost_ns : profile.ns;
  const stepNs = new Map((profile?.steps ?? []).filter((each) => each.number !== null).map((each) => [each.number, each.ns]));

  // Predicted and measured nanoseconds; measured is null where nothing was run.
  function timesOf(steps) {
    return {
      predicted: d3.sum(steps, (number) => plan.steps[number].cost_ns),
      measured: profile === null ? null : d3.sum(steps, (number) => stepNs.get(number) ?? 0),
    };
  }

  function entryTimes(entry) {
    const isIts = (each) => each.kind === "input" && each.name === entry.input && each.nbytes === entry.nbytes;
    return { predicted: entry.cost_ns, measured: profile === null ? null : profile.steps.find(isIts)?.ns ?? 0 };
  }

  const shownNs = (times) => times.measured ?? times.predicted;

  const nodes = new Map();
  const links = new Map();
  const incoming = new Map();

  function addNode(node) {
    if (!nodes.has(node.id)) nodes.set(node.id, node);
    return node.id;
  }

  function addLink(from, to, value, desc) {
    const key = JSON.stringify([from, to, value, desc]);
    if (links.has(key) || from === to) return;
    links.set(key, { from, to, value, desc });
    if (!incoming.has(to)) incoming.set(to, []);
    incoming.get(to).push(links.get(key));
  }

  function addKernels() {
    plan.kernels.forEach((kernel, index) => addNode({
      id: `k${index}`, kind: kernel.is_view ? "view" : "kernel", kernel: index, name: kernel.name, order: index,
      times: timesOf(kernel.steps), segments: kernel.path,
    }));
  }

  const kernelNamed = new Map(plan.kernels.map((kernel, index) => [kernel.name, index]));

  // A reorder: a step of the plan, or an entry that copies an input. All that is known of it, for marks and the list.
  function addReorders() {
    const madeBy = new Map();
    const add = (id, value, source, dst, entry, times, from) => {
      const kernels = entry.readers.map((reader) => kernelNamed.get(reader)).filter((each) => each !== undefined);
      madeBy.set(dst.buffer, id);
      addNode({
        id, kind: "reorder", value, source: source.desc, desc: dst.desc, nbytes: entry.nbytes, times, from,
        reason: entry.reason, readers: entry.readers, without_ns: entry.without_ns,
        kernel: kernels[0] ?? null, order: kernels.length ? d3.min(kernels) - 0.25 : plan.kernels.length, segments: [],
      });
    };
    plan.entries.forEach((entry, number) => entry.is_reorder && add(
      `e${number}`, entry.input, { desc: entry.source }, entry, entry, entryTimes(entry), null));
    plan.steps.forEach((step, number) => {
      if (step.kind !== "reorder") {
        // A kernel that overwrites a copy in place ends it.
        step.operands.filter((each) => each.argument.startsWith("dst")).forEach((each) => madeBy.delete(each.buffer));
        return;
      }
      const operand = (name) => step.operands.find((each) => each.argument === name);
      const [source, dst] = [operand("src"), operand("dst")];
      add(`r${number}`, dst.value, source, dst, step, timesOf([number]), madeBy.get(source.buffer) ?? null);
    });
  }

  function addEdges() {
    for (const edge of plan.edges) {
      const start = edge.source === null
        ? addNode({ id: `in ${edge.value}`, kind: "input", name: edge.value, desc: edge.written, order: (edge.reader ?? plan.kernels.length) - 0.5, segments: [] })
        : `k${edge.source}`;
      const end = edge.reader === null
        ? addNode({ id: `out ${edge.value}`, kind: "output", name: edge.value, desc: edge.read, order: (edge.source ?? plan.kernels.length) + 0.5, segments: [] })
        : `k${edge.reader}`;
      let mark = edge.reorder !== null ? `r${edge.reorder}` : edge.entry !== null ? `e${edge.entry}` : null;
      if (mark === null) addLink(start, end, edge.value, edge.read);
      else addLink(mark, end, edge.value, edge.read);
      while (mark !== null) {
        const { from, source, kernel } = nodes.get(mark);
        if (kernel === null) nodes.get(mark).kernel = edge.source;
        addLink(from ?? start, mark, edge.value, source);
        mark = from;
      }
    }
    for (const input of plan.inputs) {
      addNode({ id: `in ${input.name}`, kind: "input", name: input.name, desc: input.desc, order: -1, segments: [] });
    }
  }

  // A reorder lies in the innermost block that both its source and a reader are in.
  function placeReorders() {
    const [before, after] = ["to", "from"].map((end) => d3.group(links.values(), (link) => link[end]));
    const shared = (one, other) => one.slice(0, one.findIndex((each, depth) => each !== other[depth]) >>> 0);
    for (const node of nodes.values()) {
      if (node.kind !== "reorder") continue;
      const sources = (before.get(node.id) ?? []).map((link) => nodes.get(link.from).segments);
      const readers = (after.get(node.id) ?? []).map((link) => nodes.get(link.to).segments);
      node.segments = d3.greatest(d3.cross(sources, readers, shared), (each) => each.length) ?? [];
    }
  }

  // Blocks of at least two kernels, each once where one holds nothing but another; outer before inner.
  function makeBlocks() {
    const found = new Map();
    for (const node of nodes.values()) {
      node.segments.forEach((_, depth) => {
        const path = node.segments.slice(0, depth + 1);
        const key = path.join("/");
        if (!found.has(key)) found.set(key, { id: `b ${key}`, key, label: plan.blocks_by === "names" ? path.join(".") : path.at(-1), length: depth + 1, members: [] });
        found.get(key).members.push(node);
      });
    }
    const counted = [...found.values()].filter((block) => {
      block.kernels = block.members.filter((node) => node.kind === "kernel");
      return block.kernels.length > 1 && block.kernels.length < plan.kernels.length;
    });
    const kept = counted.filter((block) => !counted.some((other) =>
      other.length > block.length && other.key.startsWith(`${block.key}/`) && other.members.length === block.members.length));
    kept.sort((a, b) => a.length - b.length);
    const byKey = new Map(kept.map((block) => [block.key, block]));
    for (const node of nodes.values()) {
      node.blocks = node.segments.map((_, depth) => byKey.get(node.segments.slice(0, depth + 1).join("/"))).filter(Boolean);
      node.blocks.forEach((block, depth) => (block.depth = depth));
    }
    return kept;
  }

  addKernels();
  addReorders();
  addEdges();
  placeReorders();
  const blocks = makeBlocks();

  const runOf = new Map(plan.runs.flatMap((run, index) => run.kernels.map((kernel) => [kernel, index])));

  const isThrough = (node) => node.kind === "view" && new Set((incoming.get(node.id) ?? []).map((each) => each.from)).size <= 1;

  // ---- what is seen, with some blocks expanded, with or without what was free.
  function shownAs(node, expanded) {
    return node.blocks.find((block) => !expanded.has(block.id)) ?? node;
  }

  function seen(expanded, showsFree) {
    const isHidden = (node) => !showsFree && isThrough(node);
    const drawn = new Map();
    const drawnAs = (node) => {
      const as = shownAs(node, expanded);
      if (!drawn.has(as.id)) drawn.set(as.id, as === node ? node : { ...as, kind: "block", order: d3.min(as.members, (each) => each.order) });
      return as.id;
    };
    for (const node of nodes.values()) if (!isHidden(node)) drawnAs(node);
    const merged = new Map();
    const connect = (from, to, link, kind) => {
      if (from === to) return;
      const family = plan.descs[link.desc].class;
      const key = JSON.stringify([from, to, family]);
      if (!merged.has(key)) merged.set(key, { id: key, from, to, family, kind, links: [], nbytes: 0 });
      merged.get(key).links.push(link);
      merged.get(key).nbytes += plan.descs[link.desc].nbytes ?? 0;
    };
    for (const link of links.values()) {
      let from = nodes.get(link.from);
      while (from !== undefined && isHidden(from)) from = nodes.get(incoming.get(from.id)?.[0].from);
      if (from === undefined || isHidden(nodes.get(link.to))) continue;
      connect(drawnAs(from), drawnAs(nodes.get(link.to)), link, "handed");
    }
    if (showsFree) addVanished(drawn, drawnAs, connect);
    return { nodes: [...drawn.values()], links: [...merged.values()] };
  }

  // Names of nodes and values that are no more; a value that was named after a node that is left is none.
  const vanished = plan.kernels.map((kernel) => [...new Set(kernel.aliases)].filter((alias) => !kernel.nodes.includes(alias)));

  function addVanished(drawn, drawnAs, connect) {
    plan.kernels.forEach((kernel, index) => {
      const owner = nodes.get(`k${index}`);
      if (vanished[index].length === 0 || drawnAs(owner) !== owner.id) return;
      const id = `a${index}`;
      drawn.set(id, { id, kind: "vanished", kernel: index, names: vanished[index], order: index + 0.1, blocks: owner.blocks });
      connect(owner.id, id, { from: owner.id, to: id, value: kernel.writes, desc: kernel.chosen.dst }, "vanished");
    });
  }

  // As many levels of blocks as show no more than some nodes; the outermost at least.
  function expandedFor(budget) {
    const depths = d3.range(1 + (d3.max(blocks, (block) => block.depth) ?? -1), -1, -1);
    const upTo = (depth) => new Set(blocks.filter((block) => block.depth < depth).map((block) => block.id));
    return upTo(depths.find((depth) => seen(upTo(depth), false).nodes.length <= budget) ?? 0);
  }

  // ---- where things lie: dagre's layout, in parts that hang together by one node each, so that none takes long.
  const SIZES = { kernel: [236, 62], view: [170, 40], block: [236, 80], reorder: [216, 46], input: [226, 44], output: [226, 44], vanished: [190, 40] };
  const PART = 40;
  const LARGE = 300;
  const GAP = 46;

  function inOrder(shown) {
    const before = d3.group(shown.links, (link) => link.to);
    const byId = new Map(shown.nodes.map((node) => [node.id, node]));
    const sorted = d3.sort(shown.nodes, (node) => node.order);
    const isPlaced = new Set();
    const order = [];
    const place = (node) => {
      if (isPlaced.has(node.id)) return;
      isPlaced.add(node.id);
      d3.sort((before.get(node.id) ?? []).map((link) => byId.get(link.from)), (each) => each.order).forEach(place);
      order.push(node);
    };
    sorted.forEach(place);
    return order;
  }

  // Parts of a graph, and the links that pass by whole parts: in large graphs alone, where dagre would take long.
  function partsOf(shown) {
    const order = inOrder(shown);
    const at = new Map(order.map((node, index) => [node.id, index]));
    const span = (link) => Math.abs(at.get(link.to) - at.get(link.from));
    const parts = cut(order, at, shown.links);
    if (parts.every((part) => part.nodes.length <= LARGE)) return [parts, []];
    const [long, short] = [shown.links.filter((link) => span(link) > PART), shown.links.filter((link) => span(link) <= PART)];
    return [cut(order, at, short), long];
  }

  // Cuts at nodes that no link passes by; such a node ends one part and begins the next.
  function cut(order, at, links) {
    const reach = new Int32Array(order.length);
    const low = links.map((link) => Math.min(at.get(link.from), at.get(link.to)));
    links.forEach((link, index) => (reach[low[index]] = Math.max(reach[low[index]], at.get(link.from), at.get(link.to))));
    const parts = [];
    let [first, farthest] = [0, 0];
    order.forEach((_, index) => {
      const isSeam = farthest <= index && reach[index] > index && index - first >= PART;
      farthest = Math.max(farthest, reach[index]);
      if (!isSeam && index < order.length - 1) return;
      parts.push({ first, nodes: order.slice(first, index + 1), links: [] });
      first = index;
    });
    const starts = parts.map((part) => part.first);
    links.forEach((link, index) => parts[d3.bisectRight(starts, low[index]) - 1].links.push(link));
    return parts;
  }

  function layOut(part) {
    const laid = new dagre.graphlib.Graph({ multigraph: true });
    laid.setGraph({ rankdir: "TB", nodesep: 34, edgesep: 18, ranksep: GAP, acyclicer: "greedy" });
    for (const node of part.nodes) {
      const [width, height] = SIZES[node.kind];
      laid.setNode(node.id, { width, height });
    }
    for (const link of part.links) laid.setEdge(link.from, link.to, {}, link.id);
    dagre.layout(laid);
    return laid;
  }

  // Places part by part: calls onPart with each part's new nodes and links, and gives the browser its turn in between.
  async function place(shown, onPart, isStale) {
    const placed = new Map();
    let bottom = 0;
    const [parts, long] = partsOf(shown);
    for (const [index, part] of parts.entries()) {
      if (index > 0) await new Promise((resolve) => setTimeout(resolve, 0));
      if (isStale()) return;
      const laid = layOut(part);
      const seam = index === 0 ? null : part.nodes[0];
      const others = part.nodes.filter((node) => node !== seam);
      const top = d3.min(others, (node) => laid.node(node.id).y - laid.node(node.id).height / 2) ?? 0;
      const [dx, dy] = seam === null ? [0, -top] : [
        placed.get(seam.id).x - laid.node(seam.id).x,
        Math.max(placed.get(seam.id).y - laid.node(seam.id).y, bottom + GAP - top),
      ];
      for (const node of others) {
        const { x, y, width, height } = laid.node(node.id);
        placed.set(node.id, { ...node, x: x + dx, y: y + dy, width, height });
        bottom = Math.max(bottom, y + dy + height / 2);
      }
      const moved = part.links.map((link) => {
        const points = laid.edge(link.from, link.to, link.id).points.map(({ x, y }) => [x + dx, y + dy]);
        if (seam !== null && link.from === seam.id) points[0] = [points[0][0], placed.get(seam.id).y + placed.get(seam.id).height / 2];
        return { ...link, points };
      });
      onPart(others.map((node) => placed.get(node.id)), moved);
    }
    if (long.length > 0) onPart([], besides(long, placed));
  }

  // Links that pass by many marks, in lanes to the left of all.
  function besides(long, placed) {
    const left = d3.min([...placed.values()], (node) => node.x - node.width / 2) - GAP;
    return long.map((link, lane) => {
      const [from, to, x] = [placed.get(link.from), placed.get(link.to), left - 16 * lane];
      const [begin, end] = [from.y + from.height / 2, to.y - to.height / 2];
      const [below, above] = [begin + GAP / 2, end - GAP / 2];
      return { ...link, points: [[from.x, begin], [from.x, below], [x, below], [x, below], [x, above], [x, above], [to.x, above], [to.x, end]] };
    });
  }

  return { nodes, links: [...links.values()], blocks, runOf, vanished, totalNs, shownNs, timesOf, shownAs, isThrough, seen, expandedFor, place };
})();
