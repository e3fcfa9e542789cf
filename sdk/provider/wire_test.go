package provider_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"

	"connectrpc.com/connect"
)

// post calls an RPC as curl does: JSON over HTTP/1.1.
func post(t *testing.T, addr, method, body string) (int, map[string]any) {
	t.Helper()
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := h.Post("http://"+addr+"/bigfleet.v1alpha1.CapacityProvider/"+method, "application/json", bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	return decodeJSON(t, res)
}

func decodeJSON(t *testing.T, res *http.Response) (int, map[string]any) {
	t.Helper()
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return res.StatusCode, out
}

// WIRE-4.6 to 4.9, 12: JSON by POST and by GET, with lowerCamelCase names, full enum names, int64 as text, errors with a code
// and the typed detail.
func TestJSON(t *testing.T) {
	r := startCloud(t, newCloud())
	status, list := post(t, r.addr, "List", `{"states":["MACHINE_STATE_SPECULATIVE"],"maxResults":50,"misspelt":1}`)
	machines, _ := list["machines"].([]any)
	if status != http.StatusOK || len(machines) != 4 || list["complete"] != true || list["revision"] == "" {
		t.Fatalf("List: %d %v", status, list)
	}
	m := machines[0].(map[string]any)
	if m["state"] != "MACHINE_STATE_SPECULATIVE" || m["instanceType"] != "c1.small" || m["capacityType"] != "CAPACITY_TYPE_ON_DEMAND" || m["pricePerHour"] != 0.1 {
		t.Errorf("machine %v", m)
	}
	res, err := http.Get("http://" + r.addr + "/bigfleet.v1alpha1.CapacityProvider/Get?connect=v1&encoding=json&message=" + url.QueryEscape(`{"id":"cloud-small-0"}`))
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	if status, got := decodeJSON(t, res); status != http.StatusOK || got["id"] != "cloud-small-0" {
		t.Errorf("Get by GET: %d %v", status, got)
	}
	token := `{"machineId":"cloud-small-0","shardId":"shard-0","shardEpoch":"1700000000","sequenceNumber":"7"}`
	if status, ack := post(t, r.addr, "Create", token); status != http.StatusOK || ack["operationId"] == "" {
		t.Errorf("Create: %d %v", status, ack)
	}
	status, refused := post(t, r.addr, "Create", token)
	detail, _ := refused["details"].([]any)
	if status != http.StatusBadRequest || refused["code"] != "failed_precondition" || len(detail) != 1 || detail[0].(map[string]any)["type"] != "bigfleet.v1alpha1.FenceDetail" {
		t.Errorf("a stale token: %d %v", status, refused)
	}
	if status, refused := post(t, r.addr, "Get", `{"id":"unknown"}`); status != http.StatusNotFound || refused["code"] != "not_found" {
		t.Errorf("an unknown machine: %d %v", status, refused)
	}
}

// PROV-2.1, WIRE-4.1: the same rows by gRPC, gRPC-Web and Connect, in protobuf and in JSON.
func TestProtocols(t *testing.T) {
	r := startCloud(t, newCloud())
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	for name, options := range map[string][]connect.ClientOption{
		"grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}, "connect": nil, "connect json": {connect.WithProtoJSON()},
		"grpc json": {connect.WithGRPC(), connect.WithProtoJSON()}, "grpc, gzip request": {connect.WithGRPC(), connect.WithSendGzip()},
		"connect, GET": {connect.WithHTTPGet()},
	} {
		c := bigfleetv1alpha1connect.NewCapacityProviderClient(&http.Client{Transport: transport}, "http://"+r.addr, options...)
		list, err := c.List(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ListFilter{}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, m := range list.Msg.GetMachines() {
			if m.GetId() == "" || m.GetLabels()["rack"] != "r1" || m.GetResources().GetResources()["cpu"] != "2" || len(m.ProtoReflect().GetUnknown()) > 0 {
				t.Errorf("%s: %v", name, m)
			}
		}
		if len(list.Msg.GetMachines()) != 4 || !list.Msg.GetComplete() || len(list.Msg.GetRevision()) == 0 {
			t.Errorf("%s: %d machines", name, len(list.Msg.GetMachines()))
		}
	}
}
