import { Clipboard } from '@jupyterlab/apputils';

/** Copy a text; return whether the browser did, which Lab's own function hides. */
export function isCopied(text: string): boolean {
  let copied = false;
  const note = () => {
    copied = true;
  };
  document.addEventListener('copy', note, true);
  Clipboard.copyToSystem(text);
  document.removeEventListener('copy', note, true);
  return copied;
}
