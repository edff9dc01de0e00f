import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

const KEY = 'nbkit:sidebar';

/** What a person has folded or unfolded in this browser, by the id of the part. */
function remembered(): Record<string, boolean> {
  try {
    return { ...JSON.parse(window.localStorage.getItem(KEY) ?? '{}') };
  } catch {
    return {}; // No storage, or what another program has left there.
  }
}

/** Whether a part is unfolded, and how to change that; the browser remembers it. */
export function useFold(
  id: string,
  isOpenAtFirst: boolean
): [boolean, () => void] {
  const [chosen, choose] = React.useState(remembered()[id]);
  const isOpen = chosen ?? isOpenAtFirst;
  const toggle = () => {
    choose(!isOpen);
    try {
      const all = { ...remembered(), [id]: !isOpen };
      window.localStorage.setItem(KEY, JSON.stringify(all));
    } catch {
      // Then it holds until the page is left.
    }
  };
  return [isOpen, toggle];
}

interface ISectionProps {
  id: string;
  title: string;
  /** What the heading says beside its title, also where the section is folded. */
  notes?: React.ReactNode;
  children: React.ReactNode;
}

/** A part of the panel, which folds. */
export function Section(props: ISectionProps): JSX.Element {
  const { id, title, notes, children } = props;
  const [isOpen, toggle] = useFold(id, true);
  const caret = isOpen ? caretDownIcon : caretRightIcon;
  return (
    <section className="nbk-section" aria-label={title}>
      <h3 className="nbk-heading">
        <button
          type="button"
          className="nbk-heading-toggle"
          aria-expanded={isOpen}
          onClick={toggle}
        >
          <caret.react tag="span" className="nbk-caret" aria-hidden="true" />
          {title}
        </button>
        {notes}
      </h3>
      {isOpen && children}
    </section>
  );
}
