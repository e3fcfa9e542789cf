package kubesim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// bodyMax bounds a request body, as a real API server does.
const bodyMax = 3 << 20

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyMax+1))
	if err != nil {
		return nil, err
	}
	if len(body) > bodyMax {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body is larger than %d bytes", bodyMax))
	}
	return body, nil
}

// readJSON decodes a body into v. An empty body is io.EOF. Typed clients send built-in kinds as protobuf; answers are always
// JSON, which every client reads.
func readJSON(r *http.Request, v any) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return io.EOF
	}
	switch kind := r.Header.Get("Content-Type"); {
	case strings.Contains(kind, "protobuf"):
		if body, err = fromProtobuf(body); err != nil {
			return err
		}
	case kind != "" && !strings.Contains(kind, "json"):
		return unsupported(kind)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return apierrors.NewBadRequest("body: " + err.Error())
	}
	return nil
}

func fromProtobuf(body []byte) ([]byte, error) {
	typed, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest("protobuf body: " + err.Error())
	}
	out, err := json.Marshal(typed)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("protobuf body of kind %s: %v", gvk, err))
	}
	return out, nil
}

func readObject(r *http.Request) (*Object, error) {
	o := &Object{}
	if err := readJSON(r, &o.Object); err != nil {
		return nil, err
	}
	return o, nil
}

func unsupported(contentType string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the simulated cluster does not read %s", contentType),
	}}
}
