// What a run was asked to do: first what is not at its default.

/** The fields of a configuration; they never change. */
function configParts({ changed, default: rest }) {
  const parts = [fieldList(changed)];
  if (!changed.length) {
    parts[0] = make('p', {}, trans.__('Every field has its default.'));
  }
  if (rest.length) {
    parts.push(
      make(
        'details',
        {},
        make(
          'summary',
          {},
          trans._n('%1 field at the default', '%1 fields at the default', rest.length)
        ),
        fieldList(rest)
      )
    );
  }
  return parts;
}

function fieldList(fields) {
  return make(
    'dl',
    { class: 'nbkv-fields' },
    ...fields.map(([name, value]) =>
      make('div', {}, make('dt', {}, name), make('dd', {}, value))
    )
  );
}
