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
  if (!copied) {
    // Lab's listener is left, and would replace what the user copies next.
    const clipboardData = new DataTransfer();
    document.body.dispatchEvent(new ClipboardEvent('copy', { clipboardData }));
  }
  return copied;
}
