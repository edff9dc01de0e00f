// The parts of the view that only show: numbers, GPUs, the end.

const TITLES = {
  loss: 'Loss',
  images_per_second: 'Images/s',
  top1_accuracy: 'Top-1 accuracy',
  mean_auroc: 'Mean AUROC',
  'device:gpu_utilization_percent': 'GPU utilization (%)',
  'device:memory_used_gibibytes': 'GPU memory (GiB)',
  'device:power_watts': 'GPU power (W)',
  bus_bandwidth_gigabytes_per_second: 'Bus bandwidth (GB/s)',
  message_bytes: 'Message (bytes)',
  batch_size: 'Batch size',
  latency_milliseconds: 'Latency (ms, median)',
  served_images_per_second: 'Images/s by batch size'
};
/** What GPUs do, over time; the same name without it may be logged by a script. */
const OF_DEVICES = /^device:/;

/** Tasks that read images; a function or script may log a rate of its own. */
const WITH_IMAGES = new Set(['train', 'load']);

const UNIFIED = "The GPU shares the host's memory; the total is the host's.";

function title(name) {
  return TITLES[name] ?? name.replace(OF_DEVICES, '');
}

const UNITS = {
  bus_bandwidth_gigabytes_per_second: 'bytes',
  latency_milliseconds: 'batch of',
  served_images_per_second: 'batch of'
};

/** What a line runs over, where that is not time. */
function unit(name) {
  return UNITS[name] ?? 'step';
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
function rateWords(numbers) {
  const rate = figures(rateOf(numbers));
  const all = numbers.measured?.n;
  const steps = all || numbers.rate_steps;
  if (!steps) {
    const hint = rate === '–' ? 'no measured step' : 'the last logged value';
    return ['Images/s', rate, hint];
  }
  const of = all ? counted(all, 'step', 's') : `the last ${counted(steps, 'step', 's')}`;
  return [`Images/s (over ${of})`, rate, 'measured steps, without warm-up'];
}

function keyFacts(head, numbers) {
  const { measured } = numbers;
  const hasImages = WITH_IMAGES.has(head.task) || rateOf(numbers) !== null;
  const facts = hasImages ? [rateWords(numbers)] : [];
  if (measured?.n) {
    const quartiles = `${figures(measured.q25)} to ${figures(measured.q75)}`;
    const hint = 'median and quartiles of the same steps';
    facts.push(['Per step', `${figures(measured.median)} (${quartiles})`, hint]);
    if (measured.bursts) {
      facts.push(['Note', 'steps come in bursts', measured.bursts]);
    }
  }
  if (head.task === 'train' || numbers.loss !== null) {
    facts.push(['Loss', figures(numbers.loss)]);
  }
  if (numbers.updates_skipped !== null) {
    const hint = 'gradients outside the FP16 range; a few at the start are normal';
    facts.push(['Updates skipped (fp16)', figures(numbers.updates_skipped), hint]);
  }
  if (numbers.accuracy_name) {
    const hint = `evaluation after step ${numbers.accuracy_step}`;
    facts.push([title(numbers.accuracy_name), percent(numbers.accuracy), hint]);
  }
  if (WITH_IMAGES.has(head.task)) {
    const hint = 'share of the measured time spent waiting for input';
    facts.push(['Data wait', percent(numbers.data_wait_share), hint]);
  }
  if (numbers.bottleneck) {
    const change = numbers.try_first ? `Try: ${numbers.try_first} ` : '';
    const hint = `${change}Estimated from step times; run.diagnose() gives details.`;
    facts.push(['Bottleneck (estimated)', numbers.bottleneck, hint]);
  }
  if (numbers.checkpoint_step !== null) {
    facts.push(['Checkpoint', `step ${figures(numbers.checkpoint_step)}`]);
  }
  return facts;
}

function loggedFacts(numbers) {
  return Object.entries(numbers.logged).map(([name, value]) => [
    title(name),
    figures(value)
  ]);
}

/** A number of things, in the plural where there is more than one. */
function counted(count, one, ending) {
  return `${figures(count)} ${one}${count === 1 ? '' : ending}`;
}

/** A run's position in the queue, if known, and the reason; empty if not queued. */
function queueWords(queue) {
  const position = queue?.position
    ? ` (${queue.position} of ${queue.length})`
    : '';
  return queue ? `Queued${position}: ${queue.reason}` : '';
}

/** How far the run is, in words. */
function progressWords(head, numbers, now) {
  const words = [];
  if (numbers.step !== null) {
    const of =
      numbers.total_steps === null ? '' : ` of ${figures(numbers.total_steps)}`;
    words.push(`step ${figures(numbers.step)}${of}`);
  }
  if (numbers.total_steps && numbers.step !== null) {
    words.push(percent(Math.min(1, numbers.step / numbers.total_steps)));
  }
  if (numbers.seconds_left !== null) {
    words.push(`about ${duration(numbers.seconds_left)} left`);
  }
  if (head.runs_since !== null) {
    const seconds = (head.ran_seconds ?? 0) + Math.max(0, now - head.runs_since);
    words.push(`running for ${duration(seconds)}`);
  } else if (head.ran_seconds !== null) {
    words.push(`${head.is_final ? 'took' : 'ran for'} ${duration(head.ran_seconds)}`);
  }
  if (!numbers.is_complete) {
    const step =
      numbers.read_step === null
        ? ''
        : `: up to step ${figures(numbers.read_step)}`;
    words.push(`reading metrics${step}…`);
  }
  if (numbers.damaged_lines) {
    words.push(`${numbers.damaged_lines} damaged lines skipped`);
  }
  return words.join(' · ');
}

function deviceTable(devices, more) {
  const columns = ['GPU', 'Utilization', 'Memory (GiB)', 'Power (W)'];
  const rows = devices.map(device => {
    const share = device.gpu_utilization_percent;
    const memory = `${gibibytes(device.memory_used_bytes)} / ${gibibytes(
      device.memory_total_bytes
    )}${device.memory_unified ? ' unified' : ''}`;
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
        `${device.index} ${device.name ?? ''} on ${device.host}`
      ),
      make('td', {}, share === null ? '–' : `${share}%`),
      make('td', { title: device.memory_unified ? UNIFIED : '' }, memory),
      make('td', {}, power)
    );
  });
  const note = more ? [make('caption', {}, `and ${more} more GPUs`)] : [];
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
    parts.push(folded('Traceback', cause.traceback, true));
  }
  for (const [rank, stack] of Object.entries(cause.stacks ?? {})) {
    parts.push(folded(`Stacks of rank ${rank}`, stack, false));
  }
  parts.push(make('p', {}, 'Log: ', make('code', {}, cause.log ?? head.log)));
  if (cause.rank !== null) {
    parts.push(
      make(
        'button',
        { type: 'button', onclick: () => onRank(cause.rank) },
        `Show the log of rank ${cause.rank}`
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
