import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

/** An answer with an error status, in the server's words. */
export class RequestError extends Error {
  constructor(
    readonly status: number,
    message: string
  ) {
    super(message);
  }
}

/**
 * Ask nbkit's part of the Jupyter server.
 *
 * Rejects with a RequestError for an answer with an error status, and with
 * ServerConnection.NetworkError without an answer.
 */
export async function request<T>(
  settings: ServerConnection.ISettings,
  path: string,
  body?: object
): Promise<T> {
  const url = URLExt.join(settings.baseUrl, 'nbkit/api', path);
  const init: RequestInit = body
    ? { method: 'POST', body: JSON.stringify(body) }
    : {};
  const response = await ServerConnection.makeRequest(url, init, settings);
  const text = await response.text();
  if (!response.ok) {
    throw new RequestError(response.status, reason(response, text));
  }
  return JSON.parse(text) as T;
}

function reason(response: Response, text: string): string {
  try {
    const { message } = JSON.parse(text);
    if (typeof message === 'string' && message) {
      return message;
    }
  } catch {
    // A proxy answers with its own page; the status is enough.
  }
  return `${response.status} ${response.statusText}`;
}
