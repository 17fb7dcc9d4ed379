// What a session may do, and why not. The server decides; this only says so before somebody tries.

import type { Role } from "./types";

const ORDER: readonly Role[] = ["look", "operate", "govern"];

export function may(role: Role | null, needs: Role): boolean {
  return role !== null && ORDER.indexOf(role) >= ORDER.indexOf(needs);
}

export function whyNot(role: Role | null, needs: Role): string | null {
  if (may(role, needs)) return null;
  return role === null ? `Log in with the role ${needs}.` : `Needs the role ${needs}; this session has ${role}.`;
}
