// The parts of the view that only show: numbers, GPUs, the end.

const TITLES = {
  loss: trans.__('Loss'),
  images_per_second: trans.__('Images/s'),
  top1_accuracy: trans.__('Top-1 accuracy'),
  mean_auroc: trans.__('Mean AUROC'),
  'device:gpu_utilization_percent': trans.__('GPU utilization (%)'),
  'device:memory_used_gibibytes': trans.__('GPU memory (GiB)'),
  'device:power_watts': trans.__('GPU power (W)'),
  bus_bandwidth_gigabytes_per_second: trans.__('Bus bandwidth (GB/s)'),
  message_bytes: trans.__('Message (bytes)'),
  batch_size: trans.__('Batch size'),
  latency_milliseconds: trans.__('Latency (ms, median)'),
  served_images_per_second: trans.__('Images/s by batch size')
};
/** What GPUs do, over time; a script may log any other name that begins so. */
const OF_DEVICES =
  /^device:(?=(gpu_utilization_percent|memory_used_gibibytes|power_watts)$)/;

/** Tasks that read images; a function or script may log a rate of its own. */
const WITH_IMAGES = new Set(['train', 'load']);

const UNIFIED = trans.__(
  "The GPU shares the host's memory; the total is the host's."
);

function title(name) {
  return TITLES[name] ?? name.replace(OF_DEVICES, '');
}

const UNITS = {
  bus_bandwidth_gigabytes_per_second: trans.__('bytes'),
  latency_milliseconds: trans.__('batch of'),
  served_images_per_second: trans.__('batch of')
};

/** What a line runs over, where that is not time. */
function unit(name) {
  return UNITS[name] ?? trans.__('step');
}

/** Names with values, of which a screen reader reads each as a pair. */
class Facts {
  constructor() {
    this.node = make('dl', { class: 'nbkv-facts' });
    this._values = new Map();
  }

  /** Show pairs in this order; others are removed. */
  show(pairs) {
    const names = pairs.map(([name]) => name);
    if ([...this._values.keys()].join('\n') !== names.join('\n')) {
      this._values = new Map(names.map(name => [name, make('dd')]));
      this.node.replaceChildren(
        ...[...this._values].map(([name, value]) =>
          make('div', {}, make('dt', {}, name), value)
        )
      );
    }
    for (const [name, text, hint] of pairs) {
      const value = this._values.get(name);
      if (value.textContent !== text) {
        value.textContent = text;
      }
      value.title = hint ?? '';
    }
  }
}

/** The rate of a run: of all measured steps after it has ended. */
function rateOf({ measured, images_per_second }) {
  return measured?.n ? measured.images_per_second : images_per_second;
}

/** What that rate is, as a name, a number and a hint. */
function rateWords(numbers, task) {
  const rate = figures(rateOf(numbers));
  const all = numbers.measured?.n;
  const steps = all || numbers.rate_steps;
  if (!steps) {
    const hint =
      rate === '–'
        ? trans.__('no measured step')
        : task === 'inference'
          ? trans.__('highest rate over all batch sizes')
          : trans.__('the last logged value');
    return [trans.__('Images/s'), rate, hint];
  }
  const over = all
    ? trans._n(
        'Images/s (over %2 step)',
        'Images/s (over %2 steps)',
        all,
        figures(all)
      )
    : trans._n(
        'Images/s (over the last step)',
        'Images/s (over the last %2 steps)',
        steps,
        figures(steps)
      );
  return [over, rate, trans.__('measured steps, without warm-up')];
}

/** The rate beside its chart, whose line ends at the last step's. */
function rateHeadline(numbers) {
  const rate = figures(rateOf(numbers));
  const steps = numbers.measured?.n || numbers.rate_steps;
  return steps ? trans.__('%1 (n=%2)', rate, figures(steps)) : rate;
}

function keyFacts(head, numbers) {
  const { measured } = numbers;
  const hasImages = WITH_IMAGES.has(head.task) || rateOf(numbers) !== null;
  const facts = hasImages ? [rateWords(numbers, head.task)] : [];
  if (measured?.n) {
    const quartiles = ['median', 'q25', 'q75'].map(name => figures(measured[name]));
    const hint = trans.__('median (quartiles) of images/s over the measured steps');
    facts.push([trans.__('Per step'), trans.__('%1 (%2 to %3)', ...quartiles), hint]);
    if (measured.bursts) {
      facts.push([trans.__('Note'), trans.__('steps come in bursts'), measured.bursts]);
    }
  }
  if (head.task === 'train' || numbers.loss !== null) {
    facts.push([TITLES.loss, figures(numbers.loss)]);
  }
  if (numbers.updates_skipped !== null) {
    const hint = trans.__(
      'skipped because gradients were outside the FP16 range; a few skipped updates at the start are normal'
    );
    const skipped = trans.__('Updates skipped (fp16)');
    facts.push([skipped, figures(numbers.updates_skipped), hint]);
  }
  if (numbers.accuracy_name) {
    const hint = trans.__('evaluation after step %1', numbers.accuracy_step);
    facts.push([title(numbers.accuracy_name), percent(numbers.accuracy), hint]);
  }
  if (WITH_IMAGES.has(head.task)) {
    const hint = trans.__('share of the measured time spent waiting for input');
    facts.push([trans.__('Data wait'), percent(numbers.data_wait_share), hint]);
  }
  if (numbers.bottleneck) {
    const change = numbers.suggestion ? trans.__('Try: %1', numbers.suggestion) : '';
    const how = trans.__('Estimated from step times; run.diagnose() gives details.');
    const hint = `${change} ${how}`.trim();
    facts.push([trans.__('Bottleneck (estimated)'), numbers.bottleneck, hint]);
  }
  if (numbers.checkpoint_step !== null) {
    const step = trans.__('step %1', figures(numbers.checkpoint_step));
    facts.push([trans.__('Checkpoint'), step]);
  }
  return facts;
}

function loggedFacts(numbers) {
  return Object.entries(numbers.logged)
    .filter(([name]) => name !== 'loss' || numbers.loss === null) // it is above
    .map(([name, value]) => [title(name), figures(value)]);
}

/** Which run it is, and what it has. */
function aboutWords(head) {
  const { num_ranks, num_devices, num_nodes, imported_from } = head;
  const isCpu = head.device_type === 'cpu';
  const ranks = isCpu
    ? trans._n('%1 CPU process', '%1 CPU processes', num_ranks)
    : trans._n('%1 rank', '%1 ranks', num_ranks);
  const gpus =
    !isCpu && num_devices ? `, ${trans._n('%1 GPU', '%1 GPUs', num_devices)}` : '';
  const nodes = num_nodes > 1 ? `, ${trans._n('%1 node', '%1 nodes', num_nodes)}` : '';
  return [
    head.run_id,
    head.attempt ? trans.__('attempt %1', head.attempt + 1) : '',
    `${ranks}${gpus}${nodes}`,
    imported_from ? trans.__('imported from %1', imported_from) : ''
  ]
    .filter(Boolean)
    .join(' · ');
}

/** A run's position in the queue, if known, and the reason; empty if not queued. */
function queueWords(queue) {
  if (!queue) {
    return '';
  }
  const { position, length, reason } = queue;
  return position
    ? trans.__('Queued (%1 of %2): %3', position, length, reason)
    : trans.__('Queued: %1', reason);
}

/** How far the run is, in words. */
function progressWords(head, numbers, now) {
  const words = [];
  if (numbers.step !== null) {
    const [step, total] = [figures(numbers.step), figures(numbers.total_steps)];
    words.push(
      numbers.total_steps === null
        ? trans.__('step %1', step)
        : trans.__('step %1 of %2', step, total)
    );
  }
  if (numbers.total_steps && numbers.step !== null) {
    words.push(percent(Math.min(1, numbers.step / numbers.total_steps)));
  }
  if (numbers.seconds_left !== null) {
    words.push(trans.__('about %1 left', duration(numbers.seconds_left)));
  }
  if (head.runs_since !== null) {
    const seconds = (head.ran_seconds ?? 0) + Math.max(0, now - head.runs_since);
    words.push(
      head.state === 'starting'
        ? trans.__('started %1 ago', duration(now - head.runs_since))
        : trans.__('running for %1', duration(seconds))
    );
  } else if (head.ran_seconds !== null) {
    const ran = duration(head.ran_seconds);
    words.push(head.is_final ? trans.__('took %1', ran) : trans.__('ran for %1', ran));
  }
  if (!numbers.is_complete) {
    words.push(
      numbers.read_step === null
        ? trans.__('reading metrics…')
        : trans.__('reading metrics: up to step %1…', figures(numbers.read_step))
    );
  }
  if (numbers.damaged_lines) {
    const skipped = numbers.damaged_lines;
    words.push(
      trans._n('%1 damaged line skipped', '%1 damaged lines skipped', skipped)
    );
  }
  return words.join(' · ');
}

function deviceTable(devices, more) {
  const columns = [
    trans.__('GPU'),
    trans.__('Utilization'),
    trans.__('Memory (GiB)'),
    trans.__('Power (W)')
  ];
  const rows = devices.map(device => {
    const share = device.gpu_utilization_percent;
    const memory = `${gibibytes(device.memory_used_bytes)} / ${gibibytes(
      device.memory_total_bytes
    )}`;
    const power =
      device.power_watts === null
        ? '–'
        : `${figures(device.power_watts)} / ${figures(device.power_limit_watts)}`;
    return make(
      'tr',
      {},
      make(
        'th',
        { scope: 'row', title: device.uuid ?? '' },
        trans.__('%1 %2 on %3', device.index, device.name ?? '', device.host)
      ),
      make('td', {}, share === null ? '–' : `${share}%`),
      device.memory_unified
        ? make('td', { title: UNIFIED }, trans.__('%1 unified', memory))
        : make('td', {}, memory),
      make('td', {}, power)
    );
  });
  const note = more ? [make('caption', {}, trans._n('and %1 more GPU', 'and %1 more GPUs', more))] : [];
  return make(
    'table',
    {},
    ...note,
    make(
      'thead',
      {},
      make('tr', {}, ...columns.map(name => make('th', { scope: 'col' }, name)))
    ),
    make('tbody', {}, ...rows)
  );
}

/** Why the run ended, with the traceback and where the log is. */
function causeParts(head, onRank) {
  const { cause } = head;
  if (!cause) {
    return [];
  }
  const strong = make('strong', { 'data-state': head.state }, cause.begin);
  const words = [strong, cause.message ?? ''];
  const parts = [make('p', { class: 'nbkv-cause-words' }, ...words)];
  if (cause.traceback) {
    parts.push(folded(trans.__('Traceback'), cause.traceback, true));
  }
  for (const [rank, stack] of Object.entries(cause.stacks ?? {})) {
    parts.push(folded(trans.__('Stacks of rank %1', rank), stack, false));
  }
  parts.push(make('p', {}, trans.__('Log:'), ' ', make('code', {}, cause.log ?? head.log)));
  if (cause.rank !== null) {
    parts.push(
      make(
        'button',
        { type: 'button', onclick: () => onRank(cause.rank) },
        trans.__('Show the log of rank %1', cause.rank)
      )
    );
  }
  return parts;
}

/** A text that can be folded; it shows its end first, where the error itself is. */
function folded(name, text, isOpen) {
  const attributes = { tabindex: '0', role: 'region', 'aria-label': name };
  const pre = make('pre', attributes, text);
  // It has no height before it is in the page and unfolded.
  const observer = new ResizeObserver(() => {
    if (pre.clientHeight) {
      pre.scrollTop = pre.scrollHeight;
      observer.disconnect();
    }
  });
  observer.observe(pre);
  return make('details', { open: isOpen }, make('summary', {}, name), pre);
}
