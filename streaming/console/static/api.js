// Requests to the server, relative to the page, so the page works below any path.

export class Refused extends Error {}

async function answer(response) {
  if (response.status === 401) {
    location.assign("login");
    throw new Refused("the session has ended");
  }
  let found = {};
  try { found = await response.json(); } catch { found = { error: `the server returned status ${response.status}` }; }
  if (!response.ok) throw new Refused(found.error || `the server returned status ${response.status}`);
  return found;
}

export async function ask(question, parameters = {}, signal = undefined) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  return answer(await fetch(`api/${question}?${new URLSearchParams(given)}`, { signal, cache: "no-store" }));
}

export async function tell(question, body, signal = undefined) {
  return answer(await fetch(`api/${question}`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  }));
}
