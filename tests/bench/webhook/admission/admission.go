// Package admission serves reviews of pods the way controller-runtime does: decode the pod into its
// type, edit that, marshal it and send the difference to what came in.
package admission

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

const largestBody = 7 << 20 // what controller-runtime accepts

var decoder = newDecoder()

// Edit changes a pod that is being created; an error fails the review.
type Edit func(review *admissionv1.AdmissionRequest, pod *corev1.Pod) error

func newDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(admissionv1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}

// Handler answers reviews and writes a line for each.
func Handler(edit Edit, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		start := time.Now()
		body, err := io.ReadAll(http.MaxBytesReader(writer, request.Body, largestBody))
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		var review admissionv1.AdmissionReview
		if _, _, err := decoder.Decode(body, nil, &review); err != nil || review.Request == nil {
			http.Error(writer, fmt.Sprintf("found no review: %v", err), http.StatusBadRequest)
			return
		}
		answer, err := respond(review.Request, edit)
		if err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
			return
		}
		asked := review.Request
		review.Request, review.Response = nil, answer
		writer.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(writer).Encode(&review); err != nil {
			log.Error("could not answer", "uid", asked.UID, "error", err)
			return
		}
		log.Info("review", "uid", asked.UID, "namespace", asked.Namespace,
			"allowed", answer.Allowed, "microseconds", time.Since(start).Microseconds())
	})
}

func respond(asked *admissionv1.AdmissionRequest, edit Edit) (*admissionv1.AdmissionResponse, error) {
	var pod corev1.Pod
	if _, _, err := decoder.Decode(asked.Object.Raw, nil, &pod); err != nil {
		return refusal(asked, http.StatusBadRequest, err), nil
	}
	if err := edit(asked, &pod); err != nil {
		return nil, err
	}
	changed, err := json.Marshal(&pod)
	if err != nil {
		return nil, err
	}
	operations, err := jsonpatch.CreatePatch(asked.Object.Raw, changed)
	if err != nil {
		return nil, err
	}
	answer := &admissionv1.AdmissionResponse{UID: asked.UID, Allowed: true}
	if len(operations) > 0 {
		kind := admissionv1.PatchTypeJSONPatch
		answer.PatchType = &kind
		answer.Patch, err = json.Marshal(operations)
	}
	return answer, err
}

func refusal(asked *admissionv1.AdmissionRequest, code int32, err error) *admissionv1.AdmissionResponse {
	status := &metav1.Status{Code: code, Message: err.Error()}
	return &admissionv1.AdmissionResponse{UID: asked.UID, Result: status}
}
