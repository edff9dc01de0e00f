import { ILabShell } from '@jupyterlab/application';
import {
  MainAreaWidget,
  ToolbarButton,
  WidgetTracker
} from '@jupyterlab/apputils';
import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import { LabIcon } from '@jupyterlab/ui-components';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { Widget } from '@lumino/widgets';

/** The address of Lab that opens a page: `what` is `run` or `report`. */
export function pageAddress(what: string, id: string): string {
  const url = URLExt.join(PageConfig.getBaseUrl(), 'lab');
  return `${url}?nbkit-${what}=${encodeURIComponent(id)}`;
}

/** Where such an address is looked for. */
export const PAGE_ADDRESS = /[?&]nbkit-(run|report)=/;

/** Tabs of one kind, one for each id, which come back where Lab is loaded again. */
export class Pages<T extends Widget> {
  /** `make` makes the content of a tab; `what` is the kind's name in its address. */
  constructor(
    readonly what: string,
    private _shell: ILabShell | null,
    private _icon: LabIcon,
    private _make: (id: string, tab: () => MainAreaWidget<T>) => T
  ) {
    this.tabs = new WidgetTracker({ namespace: `nbkit-${what}` });
  }

  readonly tabs: WidgetTracker<MainAreaWidget<T>>;

  /** Show a page, and return it: in a tab of Lab, or Lab itself in one of the browser. */
  open(id: string, label: string): T | null {
    const shell = this._shell;
    if (shell === null) {
      window.open(pageAddress(this.what, id), `nbkit-${this.what}-${id}`);
      return null;
    }
    const tab = this._opened.get(id) ?? this._add(id, label, shell);
    shell.activateById(tab.id);
    return tab.content;
  }

  /** Bring a tab back: Lab puts it in its place. */
  bringBack({ id, label }: ReadonlyPartialJSONObject): void {
    if (typeof id === 'string' && id && this._shell && !this._opened.has(id)) {
      this._add(id, String(label), this._shell);
    }
  }

  argumentsOf(tab: MainAreaWidget<T>) {
    return { id: this._ids.get(tab) ?? '', label: tab.title.label };
  }

  private _add(id: string, label: string, shell: ILabShell): MainAreaWidget<T> {
    // Only after the content may it ask for its tab.
    const content = this._make(id, () => tab);
    const tab: MainAreaWidget<T> = new MainAreaWidget({ content });
    tab.id = `nbkit-${this.what}-${id}`;
    tab.title.label = label;
    tab.title.caption = `${label}\n${id}`;
    tab.title.icon = this._icon;
    this._opened.set(id, tab);
    this._ids.set(tab, id);
    tab.disposed.connect(() => this._opened.delete(id));
    void this.tabs.add(tab);
    tab.title.changed.connect(() => void this.tabs.save(tab));
    shell.add(tab, 'main', { type: `nbkit-${this.what}` });
    return tab;
  }

  private _opened = new Map<string, MainAreaWidget<T>>();
  private _ids = new WeakMap<MainAreaWidget<T>, string>();
}

/** A button of a tab's toolbar, with its words. */
export function toolbarButton(
  icon: LabIcon,
  label: string,
  onClick: () => void
): ToolbarButton {
  const className = 'nbk-page-button';
  return new ToolbarButton({ className, icon, label, tooltip: label, onClick });
}

/** A page that says in a sentence why it shows nothing else. */
export function sentence(heading: string, words: string): HTMLElement {
  const page = document.createElement('section');
  page.className = 'nbk-sentence';
  page.setAttribute('role', 'status');
  const title = document.createElement('h1');
  title.textContent = heading;
  const text = document.createElement('p');
  text.textContent = words;
  page.append(title, text);
  return page;
}
