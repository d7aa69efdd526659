// Draws the dashboard of deploy/monitoring with Grafana's own panels, from the data of a Prometheus.
//
// The address of the page says where both are: ?dashboard=reexpand.json&prometheus=http://127.0.0.1:9090&minutes=5
import {
  createTheme, DataFrame, dateTime, Field, FieldType, getDisplayProcessor, LoadingState, reduceField, TimeRange,
} from '@grafana/data';
import 'uplot/dist/uPlot.min.css';
import { BigValue, BigValueColorMode, BigValueGraphMode, BigValueTextMode, GlobalStyles, PanelChrome, Table, ThemeContext, TimeSeries }
  from '@grafana/ui';
import { LegendDisplayMode } from '@grafana/schema';
import React from 'react';
import { createRoot } from 'react-dom/client';

const ROW = 38, COLUMN = 60, GAP = 8;
const asked = new URLSearchParams(location.search);
const prometheus = asked.get('prometheus')!;
const end = Math.floor(Date.now() / 1000), start = end - 60 * Number(asked.get('minutes') ?? 5), step = 5;
const theme = createTheme({ colors: { mode: asked.get('mode') === 'light' ? 'light' : 'dark' } });
const range: TimeRange = {
  from: dateTime(start * 1000), to: dateTime(end * 1000),
  raw: { from: dateTime(start * 1000), to: dateTime(end * 1000) },
};

type Series = { metric: Record<string, string>; values: [number, string][] };
type Panel = {
  id: number; type: string; title: string; gridPos: { x: number; y: number; w: number; h: number };
  targets: { expr: string; legendFormat?: string }[]; fieldConfig: any; options: any;
  transformations?: { id: string; options: any }[];
};

async function series(expr: string): Promise<Series[]> {
  const query = expr.replaceAll('$__rate_interval', '30s').replaceAll('$instance', '.*');
  const url = `${prometheus}/api/v1/query_range?${new URLSearchParams({ query, start: `${start}`, end: `${end}`, step: `${step}` })}`;
  const answer = await (await fetch(url)).json();
  if (answer.status !== 'success') throw new Error(`${expr}: ${answer.error}`);
  return answer.data.result;
}

function named(target: Panel['targets'][number], metric: Record<string, string>): string {
  return (target.legendFormat || target.expr).replace(/{{\s*(\w+)\s*}}/g, (_, label) => metric[label] ?? '');
}

// What Grafana adds to a panel that says nothing of it: a red value from 80 on, for one.
const THRESHOLDS = { mode: 'absolute', steps: [{ value: null, color: 'green' }, { value: 80, color: 'red' }] };

function configured(panel: Panel, name: string): any {
  const { defaults, overrides } = panel.fieldConfig;
  const own = overrides.filter(({ matcher }: any) => matcher.id === 'byName' && matcher.options === name);
  const config = {
    color: { mode: panel.type === 'stat' ? 'thresholds' : 'palette-classic' }, thresholds: THRESHOLDS, ...defaults,
    ...Object.fromEntries(own.flatMap(({ properties }: any) => properties.map(({ id, value }: any) => [id, value]))),
  };
  const steps = config.thresholds.steps.map((step: any) => ({ ...step, value: step.value ?? -Infinity }));
  const stacking = config.custom?.stacking && { group: 'A', ...config.custom.stacking };
  return { ...config, thresholds: { ...config.thresholds, steps }, custom: { ...config.custom, stacking } };
}

async function frames(panel: Panel): Promise<DataFrame[]> {
  const found: DataFrame[] = [];
  for (const target of panel.targets) {
    for (const { metric, values } of await series(target.expr)) {
      const at = new Map(values.map(([time, value]) => [Math.round(time), Number(value)]));
      const times = Array.from({ length: Math.floor((end - start) / step) + 1 }, (_, place) => start + place * step);
      const value: Field = {
        name: named(target, metric), type: FieldType.number, values: times.map((time) => at.get(time) ?? null),
        config: { ...configured(panel, named(target, metric)), displayName: named(target, metric) },
        labels: metric, state: { seriesIndex: found.length },
      };
      const { min, max } = reduceField({ field: value, reducers: ['min', 'max'] });
      value.state!.range = { min, max, delta: max - min }; // for the small plots
      value.display = getDisplayProcessor({ field: value, theme });
      const time: Field = { name: 'time', type: FieldType.time, values: times.map((each) => each * 1000), config: {} };
      time.display = getDisplayProcessor({ field: time, theme });
      found.push({ fields: [time, value], length: times.length, refId: value.name });
    }
  }
  return found;
}

function Stat({ panel, data, width, height }: { panel: Panel; data: DataFrame[]; width: number; height: number }) {
  const shown = data.filter((frame) => frame.fields[1].values.some((value) => value !== null));
  const current = shown.filter((frame) => frame.fields[1].values.at(-1) !== null);
  return (
    <div style={{ display: 'flex' }}>
      {(current.length ? current : shown).map((frame) => {
        const [time, field] = frame.fields, last = [...field.values].reverse().find((value) => value !== null);
        const title = panel.options.textMode === 'name' || data.length > 1 ? field.name : undefined;
        return (
          <BigValue key={field.name} theme={theme} width={width / (current.length || 1)} height={height}
            value={{ ...field.display!(last), title }} colorMode={panel.options.colorMode ?? BigValueColorMode.Value}
            graphMode={BigValueGraphMode.Area} textMode={panel.options.textMode ?? BigValueTextMode.Auto}
            count={current.length} sparkline={{ y: field, x: time, yMin: 0 }} />
        );
      })}
    </div>
  );
}

function LastValues({ panel, data, width, height }: { panel: Panel; data: DataFrame[]; width: number; height: number }) {
  const { excludeByName = {}, indexByName = {} } = panel.transformations?.find(({ id }) => id === 'organize')?.options ?? {};
  const all = new Set(data.flatMap((frame) => Object.keys(frame.fields[1].labels!)));
  const labels = [...all].filter((name) => !excludeByName[name]).sort((one, other) => indexByName[one] - indexByName[other]);
  const fields = labels.map((name) => {
    const field: Field = { name, type: FieldType.string, config: {}, values: data.map((frame) => frame.fields[1].labels![name] ?? '') };
    field.display = getDisplayProcessor({ field, theme });
    return field;
  });
  return <Table data={{ fields, length: data.length }} width={width} height={height} />;
}

function Drawn({ panel, data }: { panel: Panel; data: DataFrame[] }) {
  const { x, y, w, h } = panel.gridPos;
  return (
    <div data-panel={panel.title} style={{ position: 'absolute', left: x * COLUMN, top: y * ROW }}>
      <PanelChrome title={panel.title} width={w * COLUMN - GAP} height={h * ROW - GAP} loadingState={LoadingState.Done}>
        {(width, height) =>
          !data.length ? <div data-empty={panel.title} style={{ textAlign: 'center', opacity: 0.6 }}>No data</div>
          : panel.type === 'stat' ? <Stat panel={panel} data={data} width={width} height={height} />
          : panel.type === 'table' ? <LastValues panel={panel} data={data} width={width} height={height} />
          : <TimeSeries frames={data} timeRange={range} timeZone="utc" width={width} height={height}
              legend={{ calcs: [], showLegend: true, displayMode: LegendDisplayMode.List, placement: 'bottom', ...panel.options.legend }} />}
      </PanelChrome>
    </div>
  );
}

async function main() {
  const dashboard = await (await fetch(asked.get('dashboard')!)).json();
  const data = await Promise.all(dashboard.panels.map(frames));
  document.body.style.background = theme.colors.background.canvas;
  document.body.style.color = theme.colors.text.primary;
  createRoot(document.getElementById('dashboard')!).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      {dashboard.panels.map((panel: Panel, place: number) => <Drawn key={panel.id} panel={panel} data={data[place]} />)}
    </ThemeContext.Provider>
  );
  document.title = 'drawn';
}

main(); // what fails is an error of the page, which its tests look at
