// The steps of a redrive, and which of them a case is at. Pure.

import type { Case, CaseProgress, Progress } from "./types";

export const STEPS = ["filter", "dry run", "rate", "progress", "verified"] as const;
export type Step = (typeof STEPS)[number];

export interface Filter {
  id: string;
  kind: string;
  aggregate: string;
  count: string;
}

export interface Rate {
  count: string;
  periodMs: number;
  first: string;
  oneshot: boolean;
}

const IN_FLIGHT: readonly Progress["phase"][] = ["running", "verifying", "draining"];

/** What the server says decides; only between the first three steps the reader chooses. */
export function stepOf(chosen: Step, reply: CaseProgress | undefined, isAgain: boolean): Step {
  if (reply?.verified) return "verified";
  const phase = reply?.progress?.phase;
  if (phase !== undefined && (IN_FLIGHT.includes(phase) || !isAgain)) return "progress";
  return chosen === "progress" || chosen === "verified" ? "rate" : chosen;
}

/** Why a case cannot be redriven at all. */
export function refusal(it: Pick<Case, "category" | "closedAt">): string | null {
  if (it.closedAt !== null) return "The case is closed.";
  if (it.category === "poison") return "What is poison is only discarded, never redriven.";
  return null;
}

export function body(filter: Filter, rate: Rate): Record<string, unknown> {
  const given: Record<string, unknown> = {};
  if (filter.id.trim() !== "") given["id"] = filter.id.trim();
  if (filter.kind.trim() !== "") given["kind"] = filter.kind.trim();
  if (filter.aggregate.trim() !== "") given["aggregate"] = filter.aggregate.trim();
  if (filter.count.trim() !== "") given["count"] = Number(filter.count);
  given["rate"] = { count: Number(rate.count), periodMs: rate.periodMs };
  given["first"] = Number(rate.first);
  given["oneshot"] = rate.oneshot;
  return given;
}

export function wrongNumber(text: string, least: number, most: number): string | null {
  const value = Number(text);
  return /^\d+$/.test(text.trim()) && value >= least && value <= most ? null : `A whole number from ${least} to ${most}.`;
}

/** How long it takes at least: the first ones at once, the rest at the rate. */
export function leastMs(matched: number, rate: Rate): number {
  return (Math.max(0, matched - 1) / Math.max(1, Number(rate.count))) * rate.periodMs;
}
