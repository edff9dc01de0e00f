import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Actions } from './actions';
import { MonitorModel } from './model';
import { IChoices } from './settings';

/** What every part of the panel needs. */
export interface IPanelContext {
  trans: TranslationBundle;
  model: MonitorModel;
  actions: Actions;
  choices: IChoices;
}

const PanelContext = React.createContext<IPanelContext | null>(null);

export const PanelProvider = PanelContext.Provider;

export function usePanel(): IPanelContext {
  const context = React.useContext(PanelContext);
  if (!context) {
    throw new Error('usePanel is called outside of PanelProvider.');
  }
  return context;
}
