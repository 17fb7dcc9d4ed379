// The head of a view: the way back, the heading that takes the focus, what can be done here.

import type { ComponentChildren } from "preact";

export interface Crumb {
  title: string;
  href: string;
}

export function Page({ title, badge, crumbs = [], lead, actions, children }: { title: string; badge?: ComponentChildren; crumbs?: readonly Crumb[]; lead?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <>
      <div class="head">
        <div class="head-text">
          {crumbs.length > 0 && (
            <nav aria-label="Breadcrumb" class="crumbs">
              <ol>
                {crumbs.map((crumb) => (
                  <li key={crumb.href}>
                    <a href={crumb.href}>{crumb.title}</a>
                  </li>
                ))}
              </ol>
            </nav>
          )}
          <div class="title-row">
            <h1 id="title" tabIndex={-1}>
              {title}
            </h1>
            {badge}
          </div>
          {lead !== undefined && <p class="lead">{lead}</p>}
        </div>
        {actions !== undefined && <div class="head-actions">{actions}</div>}
      </div>
      {children}
    </>
  );
}

/** Tabs that are links: each has an address of its own. */
export function Tabs({ label, tabs }: { label: string; tabs: readonly { title: string; href: string; isCurrent: boolean; count?: number | undefined }[] }) {
  return (
    <nav class="tabs" aria-label={label}>
      <ul>
        {tabs.map((tab) => (
          <li key={tab.href}>
            <a href={tab.href} {...(tab.isCurrent ? { "aria-current": "page" as const } : {})}>
              {tab.title}
              {tab.count !== undefined && tab.count > 0 && <span class="nav-count plain">{tab.count}</span>}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}
