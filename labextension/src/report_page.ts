import { MainAreaWidget } from '@jupyterlab/apputils';
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import {
  IFrame,
  launchIcon,
  linkIcon,
  refreshIcon
} from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import { PanelLayout, Widget } from '@lumino/widgets';

import { Actions } from './actions';
import { pageAddress, sentence, toolbarButton } from './pages';

/** Nothing in a report runs; its sources open beside it. */
const ALLOWED = [
  'allow-same-origin',
  'allow-popups',
  'allow-popups-to-escape-sandbox'
] as IFrame.SandboxExceptions[];

/** As in the header of the server's page, which does not hold for a text. */
const POLICY =
  "default-src 'none'; style-src 'unsafe-inline'; img-src data:; " +
  "base-uri 'none'; form-action 'none'";

/** The report of one study, in the colours of Lab's theme. */
export class ReportPage extends Widget {
  constructor(
    private _studyId: string,
    private _settings: ServerConnection.ISettings,
    actions: Actions,
    private _trans: TranslationBundle,
    private _tab: () => MainAreaWidget<ReportPage>
  ) {
    super();
    this.addClass('nbk-page');
    this._frame = new IFrame({ sandbox: ALLOWED });
    this.layout = new PanelLayout();
    this._inner.title = _trans.__('Report of study %1', _studyId);
    this._inner.onload = () => this._dress();
    const address = URLExt.join(
      _settings.baseUrl,
      'nbkit/report',
      encodeURIComponent(_studyId)
    );
    this._address = address;
    // The tab is made of this.
    queueMicrotask(() => {
      const { toolbar } = this._tab();
      toolbar.addItem(
        'refresh',
        toolbarButton(refreshIcon, _trans.__('Refresh'), () => void this.load())
      );
      toolbar.addItem(
        'link',
        toolbarButton(linkIcon, _trans.__('Copy Link'), () => {
          void actions.copyPath(pageAddress('report', _studyId));
        })
      );
      toolbar.addItem(
        'browser',
        toolbarButton(launchIcon, _trans.__('Open in Browser Tab'), () => {
          window.open(address, `nbkit-report-${_studyId}`);
        })
      );
      void this.load();
    });
    this._theme.observe(document.body, {
      attributeFilter: ['data-jp-theme-light']
    });
  }

  override dispose(): void {
    this._theme.disconnect();
    super.dispose();
  }

  /** Ask the server for the report as of now. */
  async load(): Promise<void> {
    const trans = this._trans;
    this._say(trans.__('Generating the report…'));
    try {
      const response = await ServerConnection.makeRequest(
        this._address,
        {},
        this._settings
      );
      const text = await response.text();
      if (this.isDisposed) {
        return;
      }
      if (!response.ok) {
        this._say(text || `${response.status} ${response.statusText}`);
        return;
      }
      this._words.remove();
      // Not by its address: a hub forbids to show that in a frame.
      this._inner.srcdoc = `<meta http-equiv="Content-Security-Policy" content="${POLICY}">${text}`;
      (this.layout as PanelLayout).addWidget(this._frame);
    } catch (error) {
      this._say((error as Error).message);
    }
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this._inner.focus();
  }

  private get _inner(): HTMLIFrameElement {
    return this._frame.node.querySelector('iframe')!;
  }

  private _say(words: string): void {
    this._frame.parent = null;
    this._words.remove();
    const heading = this._trans.__('Report of study %1', this._studyId);
    this._words = sentence(heading, words);
    this.node.append(this._words);
  }

  /** Give the report the colours of the theme, and its name to the tab. */
  private _dress = (): void => {
    const page = this._inner.contentDocument;
    if (!page?.head) {
      return;
    }
    const isLight = document.body.dataset.jpThemeLight !== 'false';
    page.documentElement.dataset.theme = isLight ? 'light' : 'dark';
    if (!page.querySelector('base')) {
      const base = page.createElement('base');
      base.target = '_blank';
      page.head.prepend(base);
    }
    if (page.title) {
      const { title } = this._tab();
      title.label = page.title;
      title.caption = `${page.title}\n${this._studyId}`;
    }
  };

  private _frame: IFrame;
  private _address: string;
  private _words: HTMLElement = document.createElement('p');
  private _theme = new MutationObserver(() => this._dress());
}
