import { LabIcon, notebookIcon } from '@jupyterlab/ui-components';

/** A card with a fan and contacts. */
export const gpuIcon = new LabIcon({
  name: 'nbkit:gpu',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161" fill-rule="evenodd">
    <path d="M2 4h2v16H2zM5 6h17v11H5zm2 2v7h13V8zM8 18h3v2H8zm5 0h5v2h-5z"/>
    <path d="M13.500 8.900a2.600 2.600 0 1 0 .001 0zm0 1.600a1 1 0 1 1-.001 0z"/>
  </g>
</svg>`
});

/** A curve between two axes. */
export const runIcon = new LabIcon({
  name: 'nbkit:run',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3" fill="#616161"
    d="M3 3h2v16h16v2H3zM7.300 15.300l4-5 3.500 3 5-6.600 1.600 1.200-6.300 8.300-3.600-3.100-2.600 3.400z"/>
</svg>`
});

/** A page with lines of text and a bar. */
export const reportIcon = new LabIcon({
  name: 'nbkit:report',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3" fill="#616161" fill-rule="evenodd"
    d="M4 2h16v20H4zm2 2v16h12V4zM8 6h8v2H8zM8 14h2v4H8zM11 10h2v8h-2zM14 12h2v6h-2z"/>
</svg>`
});

/** Three bars of different heights on a line, as of a report. */
export const tensorBoardIcon = new LabIcon({
  name: 'nbkit:tensorboard',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3" fill="#616161" d="M4 12h4v7H4zM10 5h4v14h-4zM16 9h4v10h-4zM3 20h18v2H3z"/>
</svg>`
});

/** The question of each canonical notebook as a drawing of lines, 24 units wide. */
const QUESTIONS: Readonly<Record<string, string>> = {
  // A slider with two knobs.
  interactive:
    'M3 8h9m6 0h3M3 16h3m6 0h9M12 8a3 3 0 1 0 6 0 3 3 0 0 0-6 0zM6 16a3 3 0 1 0 6 0 3 3 0 0 0-6 0z',
  // One, two and four of a kind.
  scaling: 'M3 21V3m0 18h18M7 18v-3m4 3v-6m4 6V9m4 9V4',
  // The digits of a number, fewer from line to line.
  precision: 'M3 5h2m2 0h2m2 0h2m2 0h2m2 0h2M3 12h2m2 0h2m2 0h2M3 19h2m2 0h2',
  // Two machines side by side.
  machines: 'M3 4h7v16H3zM14 4h7v16h-7zM5.500 8h2M16.500 8h2M5.500 12h2m9 0h2',
  // Images that flow through a funnel.
  input_pipeline: 'M3 4h18l-7 8v7l-4 2v-9z',
  // A stack of discs.
  storage:
    'M4 6c0-4 16-4 16 0s-16 4-16 0zv12c0 4 16 4 16 0V6M4 12c0 4 16 4 16 0',
  // Bars that run at the same time.
  concurrent_jobs: 'M3 6h12M6 12h14M4 18h11',
  // An arrow through a box.
  inference: 'M8 4h8v16H8zM2 12h4m12 0h4m-3-3 3 3-3 3',
  // A clock.
  time_to_accuracy: 'M12 3a9 9 0 1 0 .001 0zM12 7v5l4 3',
  // A pair of lungs.
  chexnet:
    'M12 3v8m0 0-3 2m3-2 3 2M9 8c-4 1-6 6-6 12 4 1 6-1 6-4zm6 0c4 1 6 6 6 12-4 1-6-1-6-4z'
};

const questionIcons = new Map(
  Object.entries(QUESTIONS).map(([name, path]) => [
    name,
    new LabIcon({
      name: `nbkit:${name}`,
      svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="nbk-question" d="${path}" fill="none" stroke-width="2"
    stroke-linecap="round" stroke-linejoin="round"/>
</svg>`
    })
  ])
);

/** The icon of a canonical notebook; Lab's own for one of a site. */
export function notebookIconOf(name: unknown): LabIcon {
  return questionIcons.get(String(name)) ?? notebookIcon;
}
