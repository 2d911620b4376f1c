import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { Link } from 'wouter';
import { call } from '../api';
import { Pager, Table, Text, Time } from '../elements';
import { may, useMe } from '../frame';
import { texts } from '../texts';
import { type Draft, FundWallet, newDraft, type Wallet, WalletProblem } from './fund-wallet';
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
  const [draft, setDraft] = useState(newDraft);
  const [isFunding, setIsFunding] = useState(false);
  const { data: wallet, error } = useQuery({
    queryKey: ['wallets', id],
    queryFn: async ({ signal }) => (await call<Wallet>(`/wallets/${id}`, { signal })).data,
  });
  if (wallet === undefined || me === undefined) return <WalletProblem error={error} me={me} />;
  const mayFund = may(me, 'wallets:fund');
  return (
    <>
      <div className="title">
        <h1>{words.wallet}</h1>
        {mayFund ? (
          <button type="button" className="main" onClick={() => setIsFunding(true)}>
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
          onFund={(approved) => {
            setDraft(approved);
            setIsFunding(true);
          }}
        />
      ) : null}
      <Entries wallet={wallet} />
      {isFunding ? (
        <FundWallet
          {...{ wallet, me, draft }}
          onDraft={setDraft}
          onClose={(isDone) => {
            setIsFunding(false);
            // If this funding is done or was approved, the next funding starts with an empty draft, not with the old
            // amount.
            if (isDone || draft.approvalId !== null) setDraft(newDraft());
          }}
        />
      ) : null}
    </>
  );
}

function useEntries(id: string, page: number) {
  return useQuery({
    queryKey: ['wallets', id, 'entries', page],
    queryFn: ({ signal }) =>
      call<readonly Entry[]>(`/wallets/${id}/entries`, { query: { page, per_page: 20 }, signal }),
    placeholderData: keepPreviousData,
  });
}

function Entries({ wallet: { id, currency } }: { readonly wallet: Wallet }): ReactNode {
  const { me } = useMe();
  const [page, setPage] = useState(1);
  const { data, error } = useEntries(id, page);
  const accountOf = (account: string): string => words.accounts[account] ?? words.wallet;
  return (
    <>
      <h2>{words.entries}</h2>
      <WalletProblem error={error} me={me} />
      {data === undefined ? null : data.data.length === 0 ? (
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
      <Pager page={page} pages={data?.meta?.total_pages ?? 1} onPage={setPage} />
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
 * Lists approved fundings of a wallet that the signed-in person requested. They were approved in the last 24 hours, and
 * their money was not moved yet.
 */
function ApprovedFundings({
  wallet: { id, currency },
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
  const { data: entries } = useEntries(id, 1);
  const own = data.filter(
    ({ change, subject, requestedBy, decidedAt, after }) =>
      // Hide a funding whose reference is in one of the newest ledger entries: its money was already moved, and the
      // services move money only once per reference.
      entries?.data.every(({ reference }) => reference !== after?.reference) === true &&
      change === 'wallet.fund' &&
      subject === id &&
      requestedBy === administratorId &&
      Date.now() - Date.parse(decidedAt ?? '') < approvalMilliseconds,
  );
  return own.map(({ id: approvalId, after, reason }) =>
    after === null ? null : (
      <p key={approvalId} className="notice">
        {words.approved(moneyText(after.amount, currency), after.reference)}{' '}
        <button
          type="button"
          onClick={() =>
            onFund({
              ...{ approvalId, reference: after.reference, reason: reason ?? '' },
              amount: decimalText(after.amount, currency),
            })
          }
        >
          {words.fundApproved}
        </button>
      </p>
    ),
  );
}
