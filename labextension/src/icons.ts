import { LabIcon } from '@jupyterlab/ui-components';

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

/** Three bars of different heights on a line, as of a report. */
export const tensorBoardIcon = new LabIcon({
  name: 'nbkit:tensorboard',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3" fill="#616161" d="M4 12h4v7H4zM10 5h4v14h-4zM16 9h4v10h-4zM3 20h18v2H3z"/>
</svg>`
});
