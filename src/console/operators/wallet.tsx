import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { Link } from 'wouter';
import { ApiProblem, call } from '../api';
import { Table, Text, Time } from '../elements';
import { Pager, usePage } from '../fields';
import { may, useMe } from '../frame';
import { texts } from '../texts';
import { type Draft, FundWallet, nextDraft, type Wallet, WalletProblem } from './fund-wallet';
import { decimalText, moneyText } from './money';

const words = texts.wallets;

interface Entry {
  readonly id: number;
  readonly from: string;
  readonly to: string;
  readonly amount: number;
  readonly balanceAfter: number;
  readonly reference: string;
  readonly reason: string | null;
  readonly actor: string | null;
  readonly createdAt: string;
}

/** Shows one wallet and its ledger entries. */
export function WalletPage({ id }: { readonly id: string }): ReactNode {
  const { me } = useMe();
  const [draft, setDraft] = useState(() => nextDraft(id));
  // An approved funding has its own draft. A shared draft would lose the reference that a retry must send again.
  const [approved, setApproved] = useState<Draft | null>(null);
  const [open, setOpen] = useState<'own' | 'approved' | null>(null);
  const { data: wallet, error } = useQuery({
    queryKey: ['wallets', id],
    queryFn: async ({ signal }) => (await call<Wallet>(`/wallets/${id}`, { signal })).data,
  });
  if (wallet === undefined || me === undefined) return <WalletProblem error={error} me={me} />;
  const mayFund = may(me, 'wallets:fund');
  const isApproved = open === 'approved' && approved !== null;
  return (
    <>
      <div className="title">
        <h1>{words.wallet}</h1>
        {mayFund ? (
          <button type="button" className="main" onClick={() => setOpen('own')}>
            {words.fund.title}
          </button>
        ) : null}
      </div>
      <WalletProblem error={error} me={me} />
      <dl>
        <dt>{words.balance}</dt>
        <dd>{moneyText(wallet.balance, wallet.currency)}</dd>
        <dt>{words.merchant}</dt>
        <dd>
          <Link href={`/merchants/${wallet.merchantId}/keys`}>
            <Text>{wallet.merchantId}</Text>
          </Link>
        </dd>
        <dt>{words.environment}</dt>
        <dd>{texts.environment[wallet.environment]}</dd>
        <dt>{words.id}</dt>
        <dd>
          <code>{wallet.id}</code>
        </dd>
      </dl>
      {mayFund && may(me, 'approvals:read') ? (
        <ApprovedFundings
          wallet={wallet}
          administratorId={me.administratorId}
          onFund={(one) => {
            setApproved((former) => (former?.approvalId === one.approvalId ? former : one));
            setOpen('approved');
          }}
        />
      ) : null}
      <Entries wallet={wallet} />
      {open === null ? null : (
        <FundWallet
          {...{ wallet, me }}
          draft={isApproved ? approved : draft}
          onDraft={isApproved ? setApproved : setDraft}
          onClose={(isDone) => {
            setOpen(null);
            // The next funding starts with an empty draft, not with the old amount.
            if (isDone && isApproved) setApproved(null);
            else if (isDone) setDraft(nextDraft(id));
          }}
        />
      )}
    </>
  );
}

function Entries({ wallet: { id, currency } }: { readonly wallet: Wallet }): ReactNode {
  const { me } = useMe();
  const page = usePage();
  const { data, error } = useQuery({
    queryKey: ['wallets', id, 'entries', page],
    queryFn: ({ signal }) =>
      call<readonly Entry[]>(`/wallets/${id}/entries`, { query: { page, per_page: 20 }, signal }),
    placeholderData: keepPreviousData,
  });
  const accountOf = (account: string): string => words.accounts[account] ?? words.wallet;
  return (
    <>
      <h2>{words.entries}</h2>
      <WalletProblem error={error} me={me} />
      {data === undefined ? null : data.meta?.total_records === 0 ? (
        <p className="empty">{words.noEntries}</p>
      ) : (
        <Table caption={words.entries} columns={words.entryColumns}>
          {data.data.map((entry) => (
            <tr key={entry.id}>
              <td>
                <Time at={entry.createdAt} />
              </td>
              <td>{words.way(accountOf(entry.from), accountOf(entry.to))}</td>
              <td>{moneyText(entry.amount, currency)}</td>
              <td>{moneyText(entry.balanceAfter, currency)}</td>
              <td>
                <Text>{entry.reference}</Text>
              </td>
              <td>
                <Text>{entry.reason ?? ''}</Text>
              </td>
              <td>
                <Text>{entry.actor ?? ''}</Text>
              </td>
            </tr>
          ))}
        </Table>
      )}
      <Pager meta={data?.meta} />
    </>
  );
}

interface ApprovedFunding {
  readonly id: string;
  readonly change: string;
  readonly subject: string | null;
  readonly requestedBy: string | null;
  readonly decidedAt: string | null;
  readonly reason: string | null;
  readonly after: { readonly amount: number; readonly reference: string } | null;
}

const approvalMilliseconds = 24 * 3_600_000;

/**
 * Lists a wallet's fundings that can be carried out now. The signed-in person requested them, another administrator
 * approved them in the last 24 hours, and their money was not moved yet.
 */
function ApprovedFundings({
  wallet,
  administratorId,
  onFund,
}: {
  readonly wallet: Wallet;
  readonly administratorId: string | null;
  readonly onFund: (draft: Draft) => void;
}): ReactNode {
  const { data = [] } = useQuery({
    queryKey: ['approvals', 'fundings'],
    queryFn: async ({ signal }) =>
      (await call<readonly ApprovedFunding[]>('/approvals', { query: { status: 'APPROVED', per_page: 100 }, signal }))
        .data,
  });
  const own = data.filter(
    ({ change, subject, requestedBy, decidedAt }) =>
      change === 'wallet.fund' &&
      subject === wallet.id &&
      requestedBy === administratorId &&
      Date.now() - Date.parse(decidedAt ?? '') < approvalMilliseconds,
  );
  return own.map(({ id: approvalId, after, reason }) =>
    after === null ? null : (
      <FundAsApproved
        key={approvalId}
        {...{ wallet, amount: after.amount, reference: after.reference }}
        onFund={() =>
          onFund({
            ...{ approvalId, reference: after.reference, reason: reason ?? '' },
            amount: decimalText(after.amount, wallet.currency),
          })
        }
      />
    ),
  );
}

/** Offers to carry out an approved funding, once it is known that its money was not moved yet. */
function FundAsApproved({
  wallet: { id, currency },
  amount,
  reference,
  onFund,
}: {
  readonly wallet: Wallet;
  readonly amount: number;
  readonly reference: string;
  readonly onFund: () => void;
}): ReactNode {
  const { data: isDone } = useQuery({
    queryKey: ['wallets', id, 'moved', reference],
    queryFn: ({ signal }) => isMoved(id, reference, signal),
  });
  if (isDone !== false) return null;
  return (
    <p className="notice">
      {words.approved(moneyText(amount, currency), reference)}{' '}
      <button type="button" onClick={onFund}>
        {words.fundApproved}
      </button>
    </p>
  );
}

/** Returns whether the wallet has a ledger entry with the reference. */
async function isMoved(id: string, reference: string, signal: AbortSignal): Promise<boolean> {
  const path = `/wallets/${id}/entries`;
  const { data } = await call<readonly Entry[]>(path, { query: { reference }, signal }).catch((error: unknown) => {
    // During an upgrade, processes of the previous release reject the parameter `reference`. Then search the newest
    // entries.
    if (!(error instanceof ApiProblem) || error.status !== 422) throw error;
    return call<readonly Entry[]>(path, { query: { per_page: 100 }, signal });
  });
  return data.some((entry) => entry.reference === reference);
}
