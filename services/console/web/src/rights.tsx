// Who looks, and whether they may give orders: asked once a minute, and when the page is shown again.
import type { GetSourcesResponse } from "@bigfleet/api/v1alpha1/console";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { momentOf, useQuery } from "./url";

export const Rights = createContext<GetSourcesResponse | undefined>(undefined);
/** Orders are offered to who may give them, and never on a page that shows another moment. */
export function useMayOrder(): boolean {
  const [q] = useQuery();
  return (useContext(Rights)?.writesAllowed ?? false) && !momentOf(q);
}
export const useUser = () => useContext(Rights)?.user ?? "";
